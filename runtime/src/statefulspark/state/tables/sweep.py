"""Sweep: removes expired entries of one state from the store, including those that are never read again.

It writes to the store directly and does not appear in any changelog. That is safe because it removes only entries that had expired by the
processing time of a committed batch: processing time never goes back, so no later batch sees such an entry, whether it still exists or not.
After a restore the changelogs may bring some of them back; the sweep removes them again.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import key_group_of, key_group_range_bounds, state_range
from statefulspark.state.store.base import Change, KeyValueStore

_CHUNK_ENTRIES: Final = 1000
"""Entries per step: after each, the sweep writes, and decides whether to continue."""
_WORTHWHILE: Final = 5
"""A sweep continues as long as at least one entry in five has expired, so expired entries stay well below a quarter of all."""
_FOREIGN_MAX: Final = 8
"""Entries of other states that are skipped one by one before the store is asked for the next one of this state."""
_SEEK_COST: Final = 8
"""Cost of a store access, in entries."""


class Expiring(Protocol):
    """A state whose stored entries expire."""

    def remaining(self, data: bytes, now_ms: int) -> bytes | None:
        """Return what is left of a stored entry at ``now_ms``: ``data`` itself while it is worth keeping as it is, None for nothing."""


class Sweep:
    """Scans the entries of one state over and over. Not thread-safe: the caller must be the only writer of the store.

    Args:
        store: The slot's.
        state_id: Of the state.
        key_groups: The slot's.
        state: Knows what has expired.

    Attributes:
        clean_ms: All that had expired by then is gone; None before the first round.
    """

    __slots__ = ("_end", "_first", "_position", "_round_ms", "_state", "_state_id", "_store", "clean_ms")

    def __init__(self, store: KeyValueStore, state_id: int, key_groups: KeyGroupRange, state: Expiring) -> None:
        self._store = store
        self._state_id = state_id
        self._state = state
        self._first = state_range(key_groups.first, state_id)[0]
        self._end = key_group_range_bounds(key_groups.first, key_groups.last)[1]
        self._position = self._first
        self._round_ms: int | None = None
        self.clean_ms: int | None = None

    def run(self, entries_max: int, now_ms: int) -> bool:
        """Look at up to ``entries_max`` entries, fewer where little has expired, and remove what had expired by ``now_ms``.

        Returns:
            True if continuing is worthwhile.

        Raises:
            UnavailableError: The store cannot be written; run again.
        """
        left = entries_max
        while left > 0 and (self.clean_ms is None or self.clean_ms < now_ms):
            seen = self._step(min(left, _CHUNK_ENTRIES), now_ms)
            left -= seen.cost
            if seen.expired * _WORTHWHILE < seen.own and not seen.round_over:
                return False
        return self.clean_ms is None or self.clean_ms < now_ms

    def run_round(self, now_ms: int) -> None:
        """Look at every entry; otherwise as `run`."""
        self._position, self._round_ms = self._first, None
        while not self._step(_CHUNK_ENTRIES, now_ms).round_over:
            pass

    def _step(self, entries: int, now_ms: int) -> _Seen:
        """Look at the next entries, other states' included, and write what changes."""
        if self._round_ms is None:
            self._round_ms = now_ms
        found: list[Change] = []
        own = cost = 0
        position, remaining, mine = self._position, self._state.remaining, self._first[2:4]
        while position < self._end and cost < entries:
            foreign = 0
            for key, data in self._store.scan(position, self._end):
                cost += 1
                position = key + b"\0"
                if key[2:4] == mine:
                    own += 1
                    foreign = 0
                    left = remaining(data, now_ms)
                    if left is not data:
                        found.append((key, left))
                else:
                    foreign += 1
                if cost >= entries:
                    break
                if foreign > _FOREIGN_MAX:
                    cost += _SEEK_COST
                    group = key_group_of(key)
                    position = state_range(group if key[2:4] < mine else group + 1, self._state_id)[0]
                    break
            else:
                position = self._end
        self._store.write(found)
        self._position, round_over = position, position >= self._end
        if round_over:
            self._position, self.clean_ms, self._round_ms = self._first, self._round_ms, None
        return _Seen(own, len(found), max(1, cost), round_over)


class _Seen(NamedTuple):
    own: int
    """Entries of the state."""
    expired: int
    cost: int
    """Entries of all states, and what skipping others took, in entries."""
    round_over: bool
