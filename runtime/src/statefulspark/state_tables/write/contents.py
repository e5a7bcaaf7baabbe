"""Contents: what the states of a new savepoint hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats.metadata import OperatorFile, SlotState
from statefulspark.checkpoint.formats.operator_state import encode_operator_file
from statefulspark.checkpoint.inspect.reader import opened_slot
from statefulspark.checkpoint.restore.operator_state import read_operator_file
from statefulspark.state.encoding.layout import state_id_of
from statefulspark.state.store.base import StoredEntries
from statefulspark.state.store.open_store import open_snapshot


class Contents(Protocol):
    """The entries and the operator state of a savepoint that is written."""

    def opened(self, slot: SlotState) -> AbstractContextManager[StoredEntries]:
        """Open the entries of one of its slots.

        Raises:
            CorruptDataError: A file of the origin is damaged or missing.
            UnavailableError: Storage did not answer, or the local disk is full.
        """

    def changed_operator_file(self, file: OperatorFile) -> bytes | None:
        """Return the bytes of an operator file, None if they are those of the origin."""


@dataclass(frozen=True, slots=True)
class StoredContents:
    """Contents of a checkpoint or savepoint, without some states.

    Attributes:
        origin: The checkpoint.
        without: Ids of the states that are left out.
    """

    origin: StoredCheckpoint
    without: frozenset[int] = frozenset()

    @contextmanager
    def opened(self, slot: SlotState) -> Iterator[StoredEntries]:
        with opened_slot(self.origin, slot, open_snapshot) as store:
            yield _WithoutStates(store, self.without) if self.without else store

    def changed_operator_file(self, file: OperatorFile) -> bytes | None:
        if not self.without:
            return None
        entries = read_operator_file(self.origin, file)
        kept = [entry for entry in entries if entry.state_id not in self.without]
        return encode_operator_file(kept) if len(kept) < len(entries) else None


@dataclass(frozen=True, slots=True)
class _WithoutStates:
    """The entries of a store without those of some states; `StoredEntries` says what the methods do."""

    store: StoredEntries
    without: frozenset[int]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self.store.get_many(keys)
        return [None if state_id_of(key) in self.without else value for key, value in zip(keys, found, strict=True)]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return (entry for entry in self.store.scan(first, end) if state_id_of(entry[0]) not in self.without)

    def close(self) -> None:
        self.store.close()
