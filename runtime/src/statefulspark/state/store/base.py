"""KeyValueStore: an ordered map of bytes with one slot's state as of the last committed batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

Change = tuple[bytes, bytes | None]
"""(store key, value); value None deletes."""


class KeyValueStore(Protocol):
    """Ordered by unsigned byte order. One thread writes at a time; others may read meanwhile, and ``snapshot`` runs in another thread beside reads.

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

    def snapshot(self, directory: Path) -> float:
        """Put an openable copy (hard links where possible) into ``directory``, which does not exist: files, no folders. Nobody writes meanwhile.

        Releases the GIL for the slow part.

        Returns:
            For how long the GIL was not released, in milliseconds; 0.0 if it hardly was held.
        """

    def size_bytes(self) -> int:
        """Approximate bytes of live data."""

    def close(self) -> None:
        """Release everything; twice is fine."""
