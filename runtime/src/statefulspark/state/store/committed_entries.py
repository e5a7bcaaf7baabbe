"""CommittedEntries: a store as committed batches have left it, while changes of some of them are held over it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from statefulspark.state.store.overlays import Overlay, overlaid

if TYPE_CHECKING:
    from statefulspark.state.store.base import Change, KeyValueStore


class CommittedEntries:
    """Reads for another thread than that of the batches. Nobody may write the store, or hold more over it, meanwhile.

    Args:
        store: The store.
        held: Changes of committed batches over it, oldest first.
    """

    def __init__(self, store: KeyValueStore, held: tuple[Overlay, ...]) -> None:
        self._store = store
        self._held = held

    def get(self, key: bytes) -> bytes | None:
        """Return a value, None when absent."""
        for overlay in reversed(self._held):
            if (change := overlay.find((key,))[0]) is not None:
                return change[1]
        return self._store.get(key)

    def scan(self, first: bytes, end: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """Entries with ``first <= key < end`` in order; close or exhaust it before anybody writes."""
        merged: Iterator[Change] = iter(self._store.scan(first, end))
        for overlay in self._held:
            merged = overlaid(merged, overlay.changes(first, end))
        yield from ((key, value) for key, value in merged if value is not None)
