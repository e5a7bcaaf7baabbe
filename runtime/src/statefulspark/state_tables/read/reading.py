"""StateReader: reads one state of a checkpoint as record batches, slot by slot."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any, Final

import pyarrow as pa

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.inspect.key_hashes import key_group_of
from statefulspark.checkpoint.inspect.reader import find_state, opened_slot, stored_entries
from statefulspark.checkpoint.restore.operator_state import read_operator_file
from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.segments import Scan
from statefulspark.state.operator.entries import OPERATOR_BROADCAST, is_operator_state
from statefulspark.state.store.base import StoredEntries
from statefulspark.state.store.open_store import open_snapshot
from statefulspark.state.types.arrow_types import AS_DECLARED, Conversions
from statefulspark.state_tables.canonical.tables import canonical_tables
from statefulspark.state_tables.read.layouts import BATCH_BYTES, ROWS_MAX, TableOptions, layout_of

_ROWS_FIRST: Final = 64

Entries = Iterator[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a state that is read at once.

    Attributes:
        slot: The slot whose files are read; None for operator state, whose files are read together.
        key_groups: Of the slot, those that are read.
        keys: Bytes of the keys that are wanted; None for all.
    """

    slot: int | None
    key_groups: Sequence[int] = ()
    keys: frozenset[bytes] | None = None


class StateReader:
    """Reads one state.

    Args:
        checkpoint: A checkpoint or savepoint.
        uid: The step.
        state: Name of the state.
        include_expired: Also show values that have expired by the time of the checkpoint and are still stored.
        with_expiry: Add the column ``expires_ms``.
        conversions: Of types that have no one Arrow type.

    Attributes:
        info: The state.
        schema: Of the table.

    Raises:
        InvalidInputError: There is no such uid or state; the message lists those that exist.
        IncompatibleFormatError: A type is not known to this release.
    """

    def __init__(
        self,
        checkpoint: StoredCheckpoint,
        uid: str,
        state: str,
        *,
        include_expired: bool = False,
        with_expiry: bool = False,
        conversions: Conversions = AS_DECLARED,
    ) -> None:
        metadata = checkpoint.metadata
        self._checkpoint = checkpoint
        self.info = find_state(checkpoint, uid, state)
        step = metadata.pipeline.step(uid) if metadata.pipeline is not None else None
        until_ms = None if include_expired else metadata.processed_ms
        self._layout = layout_of(self.info, step, TableOptions(until_ms=until_ms, with_expiry=with_expiry, conversions=conversions))
        self.schema = self._layout.schema
        self._tables = canonical_tables(checkpoint, self.info, step, self.schema, include_expired=include_expired)

    def parts(self, keys: Iterable[Any] | None = None) -> list[Part]:
        """Return the parts that have to be read.

        Args:
            keys: Only these keys, a tuple each for several key columns; None for all. Where the checkpoint says how keys are hashed, only
                their key groups are read.

        Raises:
            InvalidInputError: A key is not of the key's types, or the state has no keys.
        """
        if is_operator_state(self.info):
            self._refuse(keys)
            return [Part(None)]
        slots = self._checkpoint.metadata.slots
        if keys is None:
            return [Part(slot.slot, range(slot.first, slot.last + 1)) for slot in slots]
        self._refuse(None if self._layout.has_keys else keys)
        wanted = self._by_key_group(keys)
        found = []
        for slot in slots:
            here = {group: each for group, each in wanted.items() if group is None or group in slot.key_groups}
            if here:
                every = range(slot.first, slot.last + 1)
                groups = every if None in here else sorted(group for group in here if group is not None)
                found.append(Part(slot.slot, groups, frozenset().union(*here.values())))
        return found

    def batches(self, part: Part) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of a part in bounded memory: a batch has 16,384 rows, or fewer if their values are large. A long list is read whole.

        Close the generator if you do not exhaust it: the files of a slot are kept in a temporary folder until then.

        Raises:
            CorruptDataError: A file is missing or damaged, or an entry is damaged.
            UnavailableError: Storage did not answer, or the local disk is full.
            InvalidInputError: A value does not fit its column.
        """
        if part.slot is None:
            yield from self.operator_batches()
            return
        slot = self._checkpoint.metadata.slots[part.slot]
        if self._tables is not None and part.keys is None:
            yield from self._tables.batches(slot)
            return
        with opened_slot(self._checkpoint, slot, open_snapshot) as store:
            yield from self.stored_batches(store, part)

    def stored_batches(self, store: StoredEntries, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the rows that an opened store of the part's slot has; bounds and errors as of `batches`."""
        return self._rows(stored_entries(store, self.info, part.key_groups, part.keys), store.scan)

    def converted(self, keys: list[bytes], values: list[bytes], scan: Scan) -> pa.RecordBatch:
        """Return the rows of stored entries of the state; errors as of `batches`.

        Args:
            keys: Store keys.
            values: What is stored there.
            scan: Of the store, for the segments of long lists.
        """
        layout = self._layout
        if layout.has_parts:
            whole = [not layout.is_part(key, value) for key, value in zip(keys, values, strict=True)]
            keys, values = list(compress(keys, whole)), list(compress(values, whole))
        return layout.batch(keys, values, scan)

    def operator_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of operator state; bounds and errors as of `batches`."""
        return self._rows(self._operator_entries(), _no_segments)

    def _rows(self, entries: Entries, scan: Scan) -> Iterator[pa.RecordBatch]:
        rows = _ROWS_FIRST
        while piece := list(islice(entries, rows)):
            keys, values = [key for key, _ in piece], [value for _, value in piece]
            size_bytes = sum(map(len, keys)) + sum(map(len, values))
            rows = max(1, min(ROWS_MAX, BATCH_BYTES * len(piece) // size_bytes))
            if (batch := self.converted(keys, values, scan)).num_rows:
                yield batch

    def _operator_entries(self) -> Entries:
        files = self._checkpoint.metadata.operator_state
        copied = self.info.kind == OPERATOR_BROADCAST
        for file in files[:1] if copied else files:
            slot = file.slot.to_bytes(2, "big")
            for entry in read_operator_file(self._checkpoint, file):
                if entry.state_id == self.info.state_id:
                    items = entry.items if copied else ((slot, element) for element in entry.elements(where=self._checkpoint.url))
                    yield from ((key, value) for key, value in items if value is not None)

    def _by_key_group(self, keys: Iterable[Any]) -> dict[int | None, set[bytes]]:
        """Return the bytes of keys by key group; None for keys whose group is not known."""
        codec = KeyCodec.from_json(self.info.key_type)
        found: dict[int | None, set[bytes]] = {}
        for data in encoded_keys(codec, keys):
            # Encoded and decoded, a key is what the hash was taken of: an int for an integer of numpy's, say.
            group = key_group_of(self._checkpoint.metadata, self.info.uid, codec.decode(data))
            found.setdefault(group, set()).add(data)
        return found

    def _refuse(self, keys: Iterable[Any] | None) -> None:
        if keys is not None:
            raise InvalidInputError(f"the state {self.info.name!r} has no keys", field="keys", remedy="Read it without keys")


def encoded_keys(codec: KeyCodec, keys: Iterable[Any]) -> list[bytes]:
    """Return the bytes of keys that a caller names.

    Raises:
        InvalidInputError: A key is not of the codec's types, or the argument is itself a key.
    """
    if isinstance(keys, str | bytes):
        raise InvalidInputError("expected a list of keys", field="keys", remedy="Put the key in a list")
    try:
        return [codec.encode(key) for key in keys]
    except InvalidInputError as error:
        raise InvalidInputError(error.message, field="keys", remedy=error.remedy) from error


def _no_segments(first: bytes, end: bytes) -> Entries:  # noqa: ARG001  operator state has no long lists in segments
    return iter(())
