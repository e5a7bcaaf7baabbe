"""Layers: the bytes below the decoded objects: the store of the last committed batch, over it what the running batch spilled.

A batch that changes more than memory allows writes encoded changes to a small store of its own. The store of the committed batch
is not touched before the batch is committed itself, so a batch is undone by throwing its spill away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from statefulspark.state.store import Change, KeyValueStore

_PUT: Final = b"\x01"
_DELETED: Final = b"\x00"


class SpillStore(KeyValueStore, Protocol):
    """A store that can be thrown away."""

    def destroy(self) -> None:
        """Close and delete it."""


class Layers:
    """Reads through both layers.

    Args:
        base: The store of the last committed batch; not closed here.
        open_spill: Makes an empty store.

    Attributes:
        spills: How often the running batch spilled, 0 when it did not.
    """

    __slots__ = ("_open_spill", "_spill", "base", "get", "spills")

    def __init__(self, base: KeyValueStore, open_spill: Callable[[], SpillStore]) -> None:
        self.base = base
        self.spills = 0
        self._open_spill = open_spill
        self._spill: SpillStore | None = None
        # Without a spill, which is nearly always, a read goes to the store without a call in between.
        self.get: Callable[[bytes], bytes | None] = base.get

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values in the order of ``keys``."""
        if self._spill is None:
            return self.base.get_many(keys)
        values: list[bytes | None] = [None] * len(keys)
        below = []
        for position, marked in enumerate(self._spill.get_many(keys)):
            if marked is None:
                below.append(position)
            else:
                values[position] = _unmarked(marked)
        for position, value in zip(below, self.base.get_many([keys[position] for position in below]), strict=True):
            values[position] = value
        return values

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first <= key < end`` in order; take them before anything is spilled."""
        if self._spill is None:
            return self.base.scan(first, end)
        return _overlaid(self.base.scan(first, end), self._spill.scan(first, end))

    def spill(self, changes: list[Change]) -> None:
        """Put changes over everything before."""
        if self._spill is None:
            self._spill = self._open_spill()
            self.get = self._get_through_spill
        self._spill.write([(key, _DELETED if value is None else _PUT + value) for key, value in changes])
        self.spills += 1

    def spilled_changes(self) -> Iterator[Change]:
        """All that was spilled, in key order, each key once."""
        if self._spill is not None:
            for key, marked in self._spill.scan(b"", b"\xff\xff"):
                yield key, _unmarked(marked)

    def drop_spill(self) -> None:
        """Throw away what was spilled."""
        spill, self._spill = self._spill, None
        self.get = self.base.get
        self.spills = 0
        if spill is not None:
            spill.destroy()

    def _get_through_spill(self, key: bytes) -> bytes | None:
        marked = None if self._spill is None else self._spill.get(key)
        return self.base.get(key) if marked is None else _unmarked(marked)


def _unmarked(marked: bytes) -> bytes | None:
    return None if marked == _DELETED else marked[1:]


def _overlaid(base: Iterator[tuple[bytes, bytes]], spill: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    below = next(base, None)
    for key, marked in spill:
        while below is not None and below[0] < key:
            yield below
            below = next(base, None)
        if below is not None and below[0] == key:
            below = next(base, None)
        value = _unmarked(marked)
        if value is not None:
            yield key, value
    while below is not None:
        yield below
        below = next(base, None)
