"""What functions do with raw keyed state, as rules of the state machine."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from statefulspark.state.tables.raw_keyed_streams import KeyedOutput, Validity, keyed_inputs

from .batch_machine import BatchMachine

GROUPS = st.sampled_from([96, 97, 98, 127])
STREAMS = st.dictionaries(GROUPS, st.lists(st.binary(max_size=9), max_size=3))


class RawRules(BatchMachine):
    """Write and read the streams of key groups, which chunks of a few bytes make up."""

    @rule(streams=STREAMS, changed_only=st.booleans())
    def write_raw(self, streams: dict[int, list[bytes]], changed_only: bool) -> None:
        if self.running is None:
            self.next_batch(0)
        output = KeyedOutput(self.raw, uid="step", changed_only=changed_only, validity=Validity())
        for group, pieces in streams.items():
            output.start_new_key_group(group)
            for piece in pieces:
                assert output.write(piece) == len(piece)
        output.finish()
        if not changed_only:
            self.model["raw"].clear()
        self.model["raw"] |= {group: b"".join(pieces) for group, pieces in streams.items()}

    @rule(group=GROUPS, more=st.binary(max_size=9))
    def append_raw(self, group: int, more: bytes) -> None:
        """As a function does that keeps a log: the stream again, and some more."""
        if self.running is None:
            self.next_batch(0)
        self.write_raw({group: [self.model["raw"].get(group, b""), more]}, changed_only=True)

    @precondition(lambda self: self.running is not None)
    @rule()
    def read_raw(self) -> None:
        assert [(part.get_key_group_id(), part.get_stream().read()) for part in keyed_inputs(self.raw, Validity())] == sorted(
            self.model["raw"].items()
        )
