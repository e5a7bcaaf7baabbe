"""StateQueries: reads single keys of a running job's state from the slots that own them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.checkpoint.inspect.decoding import EntryDecoder, parse_key, parse_map_key
from statefulspark.checkpoint.inspect.key_hashes import key_hash
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.query.queried_answers import answer_of
from statefulspark.coordinator.query.queried_state import BYTES_MAX, ENTRIES_MAX, QueriedState, StateQuery
from statefulspark.coordinator.slots.calls import SlotCalls
from statefulspark.coordinator.slots.state import LOST, READY, RESTORING, STARTING, Slot
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.errors import ClosedError, FencedError, InvalidInputError, UnavailableError
from statefulspark.keygroups import key_group_of_hash, ranges
from statefulspark.rpc.messages.state_queries import ReadState, StateEntries
from statefulspark.state.encoding.layout import StateInfo, prefix_end, store_key
from statefulspark.state.registry import StateRegistry

READABLE: Final = ("value", "list", "map", "reducing", "aggregating")
_WHY_NOT: Final = {
    STARTING: "is starting",
    RESTORING: "is restoring its state",
    LOST: "is being replaced",
}
_RETRY_S: Final = 2.0


class StateQueries:
    """See `StateReads`.

    What is committed is read before the slot's incarnation is looked up: a slot that is told to undo its changes of a batch, because those of
    another attempt count, does so, or is retired, before the batch is committed.

    Args:
        batches: What is committed.
        states: The states of the job.
        slots: Returns the slots of the present parallelism.
        calls: To slots.
        pipeline: Returns how the steps hash their keys; None before the query has started.
        max_parallelism: Number of key groups.
    """

    def __init__(
        self,
        *,
        batches: BatchLog,
        states: StateRegistry,
        slots: Callable[[], SlotTable],
        calls: SlotCalls,
        pipeline: Callable[[], Pipeline | None],
        max_parallelism: int,
    ) -> None:
        self._batches = batches
        self._states = states
        self._slots = slots
        self._calls = calls
        self._pipeline = pipeline
        self._max_parallelism = max_parallelism
        self._closed = False

    def close(self) -> None:
        """Refuse further queries."""
        self._closed = True

    def states(self) -> list[StateInfo]:
        """See `StateReads`."""
        return sorted(self._states.states(), key=lambda info: (info.uid, info.name))

    def read(self, query: StateQuery) -> QueriedState:
        """See `StateReads`."""
        if self._closed:
            raise ClosedError("the job has ended. Read its last checkpoint or savepoint with `statefulspark state PATH`")
        info = self._find(query.uid, query.state)
        decoder = EntryDecoder(info, until_ms=self._batches.committed_time_ms)
        key = decoder.encode_key(parse_key(info, query.key))
        key_group = self._key_group(info, decoder.decode_key(key))
        expected, slot = self._slot_of(info.uid, key_group)
        first, end = _range(info, store_key(key_group, info.state_id, key), query)
        request = ReadState(
            epoch=slot.epoch,
            uid=info.uid,
            expected=expected,
            first=first,
            end=end,
            # The entries of a long list are its segments, which only their bytes bound.
            entries_max=query.limit if info.kind == "map" else BYTES_MAX,
            bytes_max=BYTES_MAX,
        )
        entries, more, remarks = answer_of(info, decoder, self._ask(slot, request), query)
        return QueriedState(
            state=info, key_group=key_group, slot=slot.index, committed=expected, entries=entries, next=more, remarks=remarks
        )

    def _ask(self, slot: Slot, request: ReadState) -> StateEntries:
        try:
            return self._calls.read_state(slot, request)
        except FencedError:
            raise UnavailableError(f"slot {slot.index} was restarted meanwhile. Retry in a moment", retry_after_s=_RETRY_S) from None

    def _find(self, uid: str, state: str) -> StateInfo:
        infos = self.states()
        info = next((info for info in infos if (info.uid, info.name) == (uid, state)), None)
        uids = sorted({info.uid for info in infos})
        if uid not in uids:
            raise InvalidInputError(
                f"the job has no state of uid {uid!r}", field="uid", remedy=f"Use one of: {', '.join(uids) or 'none yet'}."
            )
        names = ", ".join(info.name for info in infos if info.uid == uid and info.kind in READABLE)
        if info is None:
            raise InvalidInputError(f"uid {uid!r} has no state {state!r}", field="state", remedy=f"Use one of: {names or 'none yet'}.")
        if info.kind not in READABLE:
            raise InvalidInputError(
                f"{info.kind} {state!r} cannot be read from a running job", field="state",
                remedy=f"Use one of: {names or 'none'}; or take a savepoint and read that.",
            )  # fmt: skip
        if uid not in self._batches.delays_ms:
            raise InvalidInputError(
                f"the job does not run {uid!r} any more",
                field="uid",
                remedy="Read its state from a checkpoint with `statefulspark state PATH`.",
            )
        return info

    def _key_group(self, info: StateInfo, key: Any) -> int:
        pipeline = self._pipeline()
        step = pipeline.step(info.uid) if pipeline is not None else None
        found = key_hash(step, key) if step is not None else None
        if found is not None:
            return key_group_of_hash(found, self._max_parallelism)
        if pipeline is None:
            raise UnavailableError("the query has not started yet. Retry when the job is RUNNING", retry_after_s=_RETRY_S)
        raise InvalidInputError(
            f"the key group of keys of uid {info.uid!r} is not known here", field="key", remedy="Take a savepoint and read that."
        )

    def _slot_of(self, uid: str, key_group: int) -> tuple[int, Slot]:
        """The last committed batch of the step in the slot of a key group, and that slot.

        Raises:
            UnavailableError: The slot does not serve.
        """
        slots = len(self._slots().all())
        index = next(index for index, owned in enumerate(ranges(slots, self._max_parallelism)) if key_group in owned)
        expected = self._batches.expected_batch(uid, index)
        table = self._slots()
        if len(table.all()) != slots:
            raise UnavailableError("the job is being rescaled. Retry when it is RUNNING", retry_after_s=_RETRY_S)
        slot = table.get(index)
        if slot.state != READY:
            why = _WHY_NOT.get(slot.state, "does not serve")
            raise UnavailableError(f"slot {index}, which owns the key, {why}. Retry when it is RUNNING", retry_after_s=_RETRY_S)
        return expected, slot


def _range(info: StateInfo, prefix: bytes, query: StateQuery) -> tuple[bytes, bytes | None]:
    """The store keys to read: first and end, None for the first alone.

    Raises:
        InvalidInputError: The query does not fit the kind of state.
    """
    if not 1 <= query.limit <= ENTRIES_MAX:
        raise InvalidInputError(f"{query.limit} is not between 1 and {ENTRIES_MAX}", field="limit")
    if info.kind != "map" and (query.map_key is not None or query.after is not None):
        field = "map_key" if query.map_key is not None else "after"
        raise InvalidInputError(f"state {info.name!r} is a {info.kind} state and no map", field=field, remedy=f"Leave out {field}.")
    if query.map_key is not None:
        return prefix + parse_map_key(info, query.map_key), None
    if info.kind not in ("map", "list"):
        return prefix, None
    if query.after is None:
        return prefix, prefix_end(prefix)
    try:
        return prefix + base64.urlsafe_b64decode(query.after) + b"\0", prefix_end(prefix)
    except (binascii.Error, ValueError):
        raise InvalidInputError("not the `next` of an answer", field="after", remedy="Pass `next` as it was answered.") from None
