"""KeyValueStore: an ordered map of bytes with one slot's state as of the last committed batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Change = tuple[bytes, bytes | None]
"""(store key, value); value None deletes."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """A snapshot whose content is fixed, though its files may not be written yet.

    Attributes:
        write: Writes what is missing of the files, in another thread and while the store is read, written and closed. Called at most once. By
            default nothing is missing. Raises UnavailableError when the disk is full or fails.
        held_up_ms: For how long ``begin_snapshot`` kept other Python threads from running, in milliseconds; 0.0 if it hardly did.

    Example:
        >>> StoreSnapshot().write()
    """

    write: Callable[[], None] = _nothing
    held_up_ms: float = 0.0


class StoredEntries(Protocol):
    """The entries of a snapshot, for those who only read them; every `KeyValueStore` is one, with the same methods."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values in the order of ``keys``, None where there is none."""

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first <= key < end`` in order; close or exhaust it before ``close``."""

    def close(self) -> None:
        """Release everything."""


class KeyValueStore(Protocol):
    """Ordered by unsigned byte order. One thread writes at a time; others may read meanwhile, and take snapshots beside reads.

    `StateBackend` returns one; docs/state-backends.md says what a store of one's own must promise.

    Raises (any method): ClosedError after ``close``; UnavailableError when the disk is full or fails; CorruptDataError when
    stored bytes are damaged.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value, None when absent."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values in the order of ``keys``."""

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first <= key < end`` in order, as of the call or later; close or exhaust it before ``close``."""

    def write(self, changes: Iterable[Change]) -> None:
        """Apply in order (bounded memory inside; later wins)."""

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Delete entries with ``first <= key < end``."""

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        """Fix the content of a snapshot. Nobody writes meanwhile, but batches go on as soon as it returns: before `StoreSnapshot.write` and while it runs.

        Once that has run, ``directory`` is an openable copy of the store as it was at this call (hard links where possible): files, no folders. It
        may not be called, and an earlier snapshot may still be being written.

        Args:
            directory: Does not exist. Made by this call or by `StoreSnapshot.write`.
        """

    def size_bytes(self) -> int:
        """Approximate bytes of live data."""

    def close(self) -> None:
        """Release everything; twice is fine."""
