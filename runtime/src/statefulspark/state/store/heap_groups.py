"""HeapGroup: the entries of one key group in a `HeapStore`, and the sorted index of their keys."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

_MANY: Final = 64
"""New keys are inserted one by one if the index is that many times as long, else sorted in together."""


_NEW_MIN: Final = 64
"""So many new keys are always kept beside the index."""


class HeapGroup:
    """The entries of one key group. The index is brought up to date when a scan enters the group. Not thread-safe.

    Attributes:
        entries: By store key. Replaced as a whole by `copy_for_writing`.
        frozen: True if a snapshot needs ``entries`` as they are: `copy_for_writing` before any change.
    """

    __slots__ = ("_dead", "_index", "_new", "entries", "frozen")

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.frozen = False
        # None where no scan has come yet. Deleted keys stay in it for a while, new ones wait beside it.
        self._index: list[bytes] | None = None
        self._new: list[bytes] = []
        self._dead = 0

    def copy_for_writing(self) -> None:
        """Leave the entries to the snapshots that have them, and go on with a copy."""
        self.entries = self.entries.copy()
        self.frozen = False

    def put(self, key: bytes, value: bytes) -> None:
        """Set an entry."""
        entries = self.entries
        if key not in entries and self._index is not None:
            self._new.append(key)
            if len(self._new) > len(entries) + _NEW_MIN:
                # No scan has come for long: the next one sorts everything, and no list grows meanwhile.
                self._index, self._new, self._dead = None, [], 0
        entries[key] = value

    def remove(self, key: bytes) -> None:
        """Delete an entry, if it is there."""
        if self.entries.pop(key, None) is not None:
            self._dead += 1

    def between(self, first: bytes, end: bytes) -> Iterator[bytes]:
        """Yield the keys of ``first <= key < end`` in order, among them some that have been deleted. Change nothing meanwhile."""
        index = self._up_to_date()
        for at in range(bisect_left(index, first), len(index)):
            key = index[at]
            if key >= end:
                return
            yield key

    def _up_to_date(self) -> list[bytes]:
        entries, index = self.entries, self._index
        if index is None:
            self._index, self._dead = sorted(entries), 0
            return self._index
        if self._dead > len(entries):
            index = [key for key in index if key in entries]
            self._dead = 0
        new, self._new = self._new, []
        if len(new) * _MANY <= len(index):
            for key in new:
                at = bisect_left(index, key)
                # A key that was deleted and came back may still stand in the index.
                if at == len(index) or index[at] != key:
                    index.insert(at, key)
        else:
            # Two sorted runs, which are merged and not sorted again.
            new.sort()
            index = list(dict.fromkeys(sorted(index + new)))
        self._index = index
        return index
