"""Estimates the size of each state of a slot, without a column family per state, by scanning the store a few key groups at a time.

A hash spreads keys over key groups, so the scanned key groups are representative of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from random import Random
from time import monotonic
from typing import Final, Protocol

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import key_group_range_bounds
from statefulspark.state.encoding.segments import is_segment
from statefulspark.state.store.base import KeyValueStore

_CHUNK_ENTRIES: Final = 256
_SAMPLE_ENTRIES: Final = 2048

StateId = bytes
"""The two bytes of a state id in a store key."""


@dataclass(frozen=True, slots=True)
class StateSize:
    """Estimated size of one state in one slot.

    Attributes:
        entries: Keys, entries of maps, timers. A long list is one entry. Of raw keyed state, headers and chunks of streams.
        size_bytes: Their store keys and values, before compression.
    """

    entries: int
    size_bytes: int


class StateSizes(Protocol):
    """Sizes that get better with time."""

    def step(self, seconds_max: float) -> None:
        """Look at some more, for about so long."""

    def by_state_id(self) -> dict[int, StateSize]:
        """Return the estimate for each state id found so far."""

    def coverage(self) -> float:
        """Return the fraction of the store that the estimate is based on, 0 to 1."""


class SweptSizes:
    """Goes round and round over an ordered store; the newest count of each key group is kept.

    Args:
        store: May be written to meanwhile by another thread.
        key_groups: The slot's.
    """

    def __init__(self, store: KeyValueStore, key_groups: KeyGroupRange) -> None:
        self._store = store
        self._key_groups = key_groups
        self._group = key_groups.first
        self._after = b""
        self._running: dict[StateId, list[int]] = {}
        self._counted: dict[int, Mapping[StateId, list[int]]] = {}

    def step(self, seconds_max: float) -> None:
        """Count entries for about ``seconds_max`` seconds, at most once round."""
        deadline = monotonic() + seconds_max
        for _ in range(self._key_groups.count):
            if not self._count_group(deadline):
                return
            self._counted[self._group] = self._running
            self._running, self._after = {}, b""
            self._group = self._key_groups.first if self._group == self._key_groups.last else self._group + 1
            if monotonic() >= deadline:
                return

    def _count_group(self, deadline: float) -> bool:
        """Go on with the current key group; False when time is up before its end."""
        first, end = key_group_range_bounds(self._group, self._group)
        running = self._running
        while True:
            # A chunk at a time: an iterator that is kept open would keep old files and write buffers.
            chunk = list(islice(self._store.scan(max(first, self._after), end), _CHUNK_ENTRIES))
            for key, value in chunk:
                seen = running.setdefault(key[2:4], [0, 0])
                seen[0] += not is_segment(value)
                seen[1] += len(key) + len(value)
            if len(chunk) < _CHUNK_ENTRIES:
                return True
            self._after = chunk[-1][0] + b"\0"
            if monotonic() >= deadline:
                return False

    def by_state_id(self) -> dict[int, StateSize]:
        """Return the counts of the key groups seen, scaled to all of them."""
        sums: dict[StateId, list[int]] = {}
        for counted in self._counted.values():
            for state_id, (entries, size_bytes) in counted.items():
                total = sums.setdefault(state_id, [0, 0])
                total[0] += entries
                total[1] += size_bytes
        return _scaled(sums, self._key_groups.count / max(1, len(self._counted)))

    def coverage(self) -> float:
        """Return the part of the key groups that was counted."""
        return len(self._counted) / self._key_groups.count


class SampledSizes:
    """Looks at entries picked at random; for a store that hands them out for nothing.

    Args:
        store: See `SampledStore`.
        seed: Of the picks.
    """

    def __init__(self, store: SampledStore, seed: int = 0) -> None:
        self._store = store
        self._random = Random(seed)
        self._sizes: dict[int, StateSize] = {}

    def step(self, seconds_max: float) -> None:
        """Take a new sample; it is small whatever ``seconds_max``."""
        del seconds_max
        entries = self._store.entry_count()
        sums: dict[StateId, list[int]] = {}
        sample = self._store.sample(_SAMPLE_ENTRIES, self._random)
        for key, value in sample:
            seen = sums.setdefault(key[2:4], [0, 0])
            seen[0] += not is_segment(value)
            seen[1] += len(key) + len(value)
        self._sizes = _scaled(sums, entries / max(1, len(sample)))

    def by_state_id(self) -> dict[int, StateSize]:
        """Return the last sample's, scaled to all entries."""
        return self._sizes

    def coverage(self) -> float:
        """Return 1: every entry could have been in the sample."""
        return 1.0


class SampledStore(Protocol):
    """A store with cheap access to entries at random."""

    def entry_count(self) -> int:
        """Return the number of entries."""

    def sample(self, entries: int, random: Random) -> list[tuple[bytes, bytes]]:
        """Return all entries if there are at most so many, else so many picked at random."""


def _scaled(sums: Mapping[StateId, list[int]], factor: float) -> dict[int, StateSize]:
    return {
        int.from_bytes(state_id, "big"): StateSize(round(entries * factor), round(size_bytes * factor))
        for state_id, (entries, size_bytes) in sums.items()
    }
