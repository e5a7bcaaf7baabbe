"""Overlays: changes in front of a store that have not been written to it, in memory or in a small store of their own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from statefulspark.state.store.base import Change, KeyValueStore

_PUT: Final = b"\x01"
_DELETED: Final = b"\x00"
_ENTRY_BYTES: Final = 130
"""Memory overhead of a dict entry and the object headers of its key and value."""


class SpillStore(KeyValueStore, Protocol):
    """A store that can be thrown away."""

    def destroy(self) -> None:
        """Close and delete it."""


class Overlay(Protocol):
    """Changes, each key once; later ones replace earlier ones."""

    def write(self, changes: Iterable[Change]) -> None:
        """Add changes."""

    def find(self, keys: Sequence[bytes]) -> list[Change | None]:
        """Return the change of each key, None for a key that is not changed here."""

    def changes(self, first: bytes, end: bytes) -> Iterator[Change]:
        """Changes with ``first <= key < end`` in order."""

    def destroy(self) -> None:
        """Throw it away."""


class MemoryOverlay:
    """Changes in memory.

    Attributes:
        size_bytes: Estimated memory.
    """

    __slots__ = ("_changes", "_index", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._changes: dict[bytes, Change] = {}
        # Sorted; built on the first scan.
        self._index: list[bytes] | None = None

    def write(self, changes: Iterable[Change]) -> None:
        mine = self._changes
        for change in changes:
            if (before := mine.get(change[0])) is not None:
                self.size_bytes -= change_bytes(before)
            mine[change[0]] = change
            self.size_bytes += change_bytes(change)
        self._index = None

    def find(self, keys: Sequence[bytes]) -> list[Change | None]:
        return list(map(self._changes.get, keys))

    def changes(self, first: bytes, end: bytes) -> Iterator[Change]:
        index = self._index
        if index is None:
            index = self._index = sorted(self._changes)
        for position in range(bisect_left(index, first), bisect_left(index, end)):
            yield self._changes[index[position]]

    def destroy(self) -> None:
        self._changes = {}
        self._index = None
        self.size_bytes = 0


class SpilledOverlay:
    """Changes in a store of their own, each value with a mark before it.

    Args:
        store: Empty; destroyed with the overlay.
    """

    __slots__ = ("_store",)

    def __init__(self, store: SpillStore) -> None:
        self._store = store

    def write(self, changes: Iterable[Change]) -> None:
        self._store.write((key, _DELETED if value is None else _PUT + value) for key, value in changes)

    def find(self, keys: Sequence[bytes]) -> list[Change | None]:
        found = self._store.get_many(keys)
        return [None if marked is None else (key, _unmarked(marked)) for key, marked in zip(keys, found, strict=True)]

    def changes(self, first: bytes, end: bytes) -> Iterator[Change]:
        for key, marked in self._store.scan(first, end):
            yield key, _unmarked(marked)

    def destroy(self) -> None:
        self._store.destroy()


def change_bytes(change: Change) -> int:
    """Memory that a change uses in a `MemoryOverlay`."""
    key, value = change
    return _ENTRY_BYTES + len(key) + (0 if value is None else len(value))


def overlaid(below: Iterator[Change], above: Iterator[Change]) -> Iterator[Change]:
    """Merge two ordered runs of changes; of a key in both, the one above counts."""
    lower = next(below, None)
    for change in above:
        while lower is not None and lower[0] < change[0]:
            yield lower
            lower = next(below, None)
        if lower is not None and lower[0] == change[0]:
            lower = next(below, None)
        yield change
    while lower is not None:
        yield lower
        lower = next(below, None)


def _unmarked(marked: bytes) -> bytes | None:
    return None if marked == _DELETED else marked[1:]
