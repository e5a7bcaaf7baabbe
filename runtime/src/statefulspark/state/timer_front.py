"""TimerFront: the first stored timers of one key group."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

BEFORE_ALL: Final = bytes(8)
"""The first time of all."""
AFTER_ALL: Final = b"\xff" * 9
"""Above every timer."""
_AHEAD_TIMERS: Final = 512
"""Timers of a key group that are read at once, at most: a scan of RocksDB costs as much as a hundred of them."""
_AHEAD_TIMERS_FIRST: Final = 16
_AHEAD_BYTES: Final = 16 << 10
"""About what the timers of a key group take that are read ahead; beyond the first ones, fewer large ones are."""


class TimerFront:
    """The first stored timer of one key group.

    Attributes:
        at: No stored timer of the group that has not fired comes before it; None when there are no more. Its bytes after the time begin with those of the group.
        ahead: The next timers in reverse order, read from the store; the last one is ``at``. Empty when not read.
        changed: Timers up to the first of ``ahead`` that have been stored or deleted since it was read.
    """

    __slots__ = ("ahead", "at", "changed", "group")

    def __init__(self, group: bytes) -> None:
        self.group = group
        self.at: bytes | None = BEFORE_ALL + group
        self.ahead: list[bytes] = []
        self.changed: list[bytes] = []

    def read(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Read some of the entries of the store, which are timers from ``at`` on, in order."""
        at_first = min(_AHEAD_TIMERS_FIRST, _AHEAD_TIMERS)
        keys = [store_key for store_key, _ in islice(entries, at_first)]
        if len(keys) == at_first:
            keys += [store_key for store_key, _ in islice(entries, _affordable(keys) - at_first)]
        self.ahead = [store_key[4:12] + self.group + store_key[12:] for store_key in reversed(keys)]
        self.at = self.ahead[-1] if self.ahead else None

    def due(self, end: bytes) -> list[bytes]:
        """Return the timers below ``end`` that have been read."""
        return [timer for timer in self.ahead if timer < end]

    def taken(self, bound: bytes) -> list[bytes]:
        """Remove and return the timers below ``bound`` that have been read, in reverse order."""
        ahead = self.ahead
        timers = ahead[bisect_left(ahead, True, key=lambda timer: timer < bound) :]
        if timers:
            del ahead[len(ahead) - len(timers) :]
            self.at = ahead[-1] if ahead else timers[0] + b"\0"
        return timers

    def pass_changed(self, changed: Mapping[bytes, bool]) -> None:
        """Pass the first timers as far as they are among ``changed``; at least one is."""
        ahead, timer = self.ahead, b""
        while ahead and ahead[-1] in changed:
            timer = ahead.pop()
        self.at = ahead[-1] if ahead else timer + b"\0"

    def take_in(self, stored: Mapping[bytes, bool]) -> None:
        """Bring ``ahead`` up to date with ``changed``; ``stored`` says which of these there are now."""
        if not self.changed:
            return
        last = self.ahead[0]
        known = sorted({timer for timer in (*self.ahead, *self.changed) if stored.get(timer, True)}, reverse=True)
        self.changed = []
        # All stored timers up to the last one are known. So are those of each beginning of the list.
        if known:
            del known[: -_affordable(known)]
        self.at = known[-1] if known else last + b"\0"
        self.ahead = known

    def forget(self, stored: Mapping[bytes, bool]) -> None:
        """Forget ``ahead`` because much of it has changed: the store returns timers in order, and so sooner than they are sorted here."""
        self.at = min([self.ahead[-1], *(timer for timer in self.changed if stored[timer])])
        self.ahead, self.changed = [], []


def _affordable(timers: Sequence[bytes]) -> int:
    """Return the number of timers of this size that are read ahead of a key group."""
    return min(max(_AHEAD_TIMERS_FIRST, _AHEAD_BYTES // max(map(len, timers))), _AHEAD_TIMERS)
