"""KeyOrder: the keys of one state in one key group of a `HeapStore`, sorted only as far as scans have come."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

_MANY: Final = 64
"""New keys are inserted one by one if the sorted keys are that many times as many, else sorted in together."""
_WAITING_MAX: Final = 64
"""So many new keys always wait for the next scan."""
_FIRST_PULL: Final = 64
"""Keys that a scan sorts first; each time that it needs more, about as many as it has taken."""
_SORT_SHARE: Final = 8
"""A scan that needs more than this part of the keys that are not sorted sorts all of them, which costs less than taking one after the other."""


class KeyOrder:
    """The first keys are sorted, the others are a binary heap. Not thread-safe.

    A new key costs the same however many there are, and a scan that begins with the first keys, as one of timers does, pays for the keys that it takes.
    A scan of all keys sorts them once. Deleted keys stay for a while; new ones wait for the next scan. Before the first scan nothing is kept, unless the
    order is made for a state that will be scanned and has no keys yet.

    Args:
        built: True if there are no keys, and a scan will come.
    """

    __slots__ = ("_built", "_dead", "_heap", "_sorted", "_waiting", "_waiting_max")

    def __init__(self, *, built: bool = False) -> None:
        self._built = built
        self._sorted: list[bytes] = []
        # Every key in it is greater than all sorted ones.
        self._heap: list[bytes] = []
        self._waiting: list[bytes] = []
        self._waiting_max = _WAITING_MAX
        self._dead = 0

    def __len__(self) -> int:
        """Number of keys that it keeps, deleted ones and duplicates among them."""
        return len(self._sorted) + len(self._heap) + len(self._waiting)

    @property
    def built(self) -> bool:
        """True if it knows the keys; `build` must come before a scan otherwise."""
        return self._built

    def build(self, keys: Iterable[bytes]) -> None:
        """Take in all keys, in time proportional to their number."""
        self._heap = list(keys)
        heapify(self._heap)
        self._built = True

    def add(self, key: bytes, entries: Container[bytes]) -> None:
        """A key has come that was not there, or had been deleted. ``entries`` has the keys that are there."""
        if not self._built:
            return
        self._waiting.append(key)
        if len(self._waiting) > self._waiting_max:
            self._push_waiting(entries)
            if len(self._waiting) > len(self._sorted) + len(self._heap) + _WAITING_MAX:
                # No scan has come for long: the next one sorts everything, and no list grows meanwhile.
                self._forget()

    def remove(self) -> None:
        """A key has been deleted."""
        self._dead += self._built

    def between(self, first: bytes, end: bytes, entries: Container[bytes], taken: int = 0) -> Iterator[bytes]:
        """Yield the keys of ``first <= key < end`` in order, among them some that have been deleted. Change nothing meanwhile.

        Args:
            first: The first one that may come.
            end: No key from here on comes.
            entries: Has the keys that are there.
            taken: Keys that the same scan has taken already, from an earlier call: the more, the more are sorted at once.
        """
        self._push_waiting(entries)
        self._insert_waiting()
        found, pull = self._sorted, max(_FIRST_PULL, taken)
        at = bisect_left(found, first)
        while True:
            while at < len(found):
                key = found[at]
                if key >= end:
                    return
                yield key
                at += 1
            if not self._heap or self._heap[0] >= end:
                return
            self._pull(pull)
            pull *= 2
            at = bisect_left(found, first, at)

    def _pull(self, wanted: int) -> None:
        """Sort some more keys."""
        heap = self._heap
        if wanted * _SORT_SHARE >= len(heap):
            heap.sort()
            pulled, self._heap = heap, []
        else:
            pulled = [heappop(heap) for _ in range(wanted)]
            while heap and heap[0] == pulled[-1]:
                heappop(heap)
        # A key that was deleted and came back may be among them twice.
        self._sorted += dict.fromkeys(pulled)

    def _push_waiting(self, entries: Container[bytes]) -> None:
        """Move the new keys to the heap, except those that come before sorted ones."""
        if self._dead > len(self) // 2 + _WAITING_MAX:
            self._drop_dead(entries)
        waiting, heap = self._waiting, self._heap
        if self._sorted:
            last = self._sorted[-1]
            later = [key for key in waiting if key > last]
            if later:
                waiting = [key for key in waiting if key <= last]
        else:
            later, waiting = waiting, []
        if len(later) * _SORT_SHARE > len(heap):
            heap += later
            heapify(heap)
        else:
            for key in later:
                heappush(heap, key)
        self._waiting = waiting
        # Twice as many, because those that stay here are compared again.
        self._waiting_max = 2 * len(waiting) + _WAITING_MAX

    def _insert_waiting(self) -> None:
        """Sort in the new keys that come before sorted ones."""
        found, waiting = self._sorted, self._waiting
        self._waiting, self._waiting_max = [], _WAITING_MAX
        if len(waiting) * _MANY <= len(found):
            for key in waiting:
                at = bisect_left(found, key)
                # A key that was deleted and came back may still stand there.
                if at == len(found) or found[at] != key:
                    insort(found, key)
        else:
            # Two sorted runs, which are merged and not sorted again.
            waiting.sort()
            self._sorted = list(dict.fromkeys(sorted(found + waiting)))

    def _drop_dead(self, entries: Container[bytes]) -> None:
        self._sorted = [key for key in self._sorted if key in entries]
        # One that was deleted and came back often is among them as often.
        self._heap = [key for key in dict.fromkeys(self._heap) if key in entries]
        heapify(self._heap)
        self._waiting = [key for key in dict.fromkeys(self._waiting) if key in entries]
        self._dead = 0

    def _forget(self) -> None:
        self._built = False
        self._sorted, self._heap, self._waiting = [], [], []
        self._waiting_max, self._dead = _WAITING_MAX, 0
