"""Sweep: removes expired entries of one state from the store, including those that are never read again.

It writes to the store directly and does not appear in any changelog. That is safe because it removes only entries that had expired by the
processing time of a committed batch: processing time never goes back, so no later batch sees such an entry, whether it still exists or not.
After a restore the changelogs may bring some of them back; the sweep removes them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple, Protocol

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import state_range
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.split_store import rocksdb_part
from statefulspark.state.tables.entry_places import EntryPlaces

_SEEK_CHECKS: Final = 8
"""Cost of opening a key group in the store, in checks of entries."""
_GROUPS_MAX: Final = 1000
"""Key groups that a run skips at most: about half a millisecond."""
_ROUND_CHECKS: Final = 10_000
"""Checks that `Sweep.run_round` makes between two writes."""


class Swept(NamedTuple):
    """Result of sweeping some of a state's stored entries."""

    deletes: list[bytes]
    """Store keys of what has expired, in order."""
    rewritten: list[Change]
    """Entries that are written again because a part of them has expired."""
    expired: int
    """Number of values, map entries and lists that were removed. A long list counts as one, however many segments it had."""
    last: bytes | None
    """Store key of the last entry that was checked; None if there was none."""
    entries: int
    """Entries checked."""
    checks: int
    """Number of expiries that were checked."""
    next_expiry_ms: int | None
    """The earliest expiry of what is left; None if nothing of it expires."""


class Ran(NamedTuple):
    """Cost of a run of a sweep."""

    checks: int
    entries: int
    """Entries checked."""
    round_ended: bool
    most_at_once: float = 1.0
    """When the round has ended: see `EntryPlaces.most_at_once`."""


class Expiring(Protocol):
    """A state whose stored entries expire."""

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:
        """Check entries, which are passed with their store keys in order, until ``checks_max`` is reached; at least one if there is one."""


class _Visit:
    """A visit of one key group, which may take several slices."""

    __slots__ = ("checks", "earliest_ms", "end", "group", "left", "position", "seen", "seen_until_ms")

    def __init__(self, group: int, bounds: tuple[bytes, bytes], seen_until_ms: int) -> None:
        self.group = group
        self.position, self.end = bounds
        self.seen_until_ms = seen_until_ms
        self.earliest_ms: int | None = None
        self.seen = self.left = self.checks = 0


class Sweep:
    """Goes round the key groups of one state over and over. Not thread-safe: the caller must be the only writer of the store.

    After a visit it knows until when nothing in the key group can expire: the earliest expiry that it left there, or one time to live
    after the visit for what is written later. Until then it skips the group without reading it.

    Args:
        store: The slot's.
        state_id: Of the state.
        key_groups: The slot's.
        state: Knows what has expired.
        ttl_ms: The time to live of what is written.

    Attributes:
        expired: Entries deleted so far.
    """

    __slots__ = (
        "_calm_until_ms",
        "_earliest_ms",
        "_first",
        "_group",
        "_places",
        "_rocksdb",
        "_seen_until_ms",
        "_sizes",
        "_state",
        "_state_id",
        "_store",
        "_ttl_ms",
        "_visit",
        "_weights",
        "expired",
    )

    def __init__(self, store: KeyValueStore, state_id: int, key_groups: KeyGroupRange, state: Expiring, ttl_ms: int) -> None:
        self._store = store
        self._rocksdb = rocksdb_part(store)
        self._state_id = state_id
        self._state = state
        self._ttl_ms = ttl_ms
        groups = key_groups.last - key_groups.first + 1
        self._first = key_groups.first
        self._sizes = [0] * groups
        self._calm_until_ms = [0] * groups
        self._seen_until_ms: list[int | None] = [None] * groups
        """By key group: the last visit saw all that was written before this processing time; None before the first visit."""
        self._earliest_ms: list[int | None] = [None] * groups
        """By key group: the earliest expiry that the last visit left; None for none."""
        self._group = 0
        self._visit: _Visit | None = None
        self._places = EntryPlaces()
        self._weights = [0] * groups
        """By key group: the checks of the last visit, which are the entries, and the elements of lists, that were stored."""
        self.expired = 0

    @property
    def progress(self) -> float:
        """Share of the round that is done, by key groups; less than 1."""
        visit = self._visit
        # A group's number of entries is known from the last visit only.
        within = visit.seen / max(self._sizes[visit.group], visit.seen + 1) if visit is not None else 0.0
        return (self._group + within) / len(self._sizes)

    def next_expiry_ms(self, opened_ms: int, last_write_ms: int | None) -> int | None:
        """Return a time by which an entry may have expired that is still stored; None if there is none. Thread-safe.

        Args:
            opened_ms: Processing time at which the sweep began; what lies in key groups that it has not visited may have expired by then.
            last_write_ms: Processing time of the last batch that wrote the state, None for none.
        """
        seen_until_ms = self._seen_until_ms
        found = [each for each in self._earliest_ms if each is not None]
        if None in seen_until_ms:
            found.append(opened_ms)
        if last_write_ms is not None and any(seen is not None and seen <= last_write_ms for seen in seen_until_ms):
            found.append(last_write_ms + self._ttl_ms)
        return min(found, default=None)

    def restart_visit(self) -> None:
        """Let the visit that has begun start again at the beginning of its key group."""
        self._visit = None

    def start_at(self, share: float) -> None:
        """Let the first round begin at this share of the key groups, 0 up to 1."""
        self._group = int(share * len(self._sizes))

    def run(self, checks_max: int, now_ms: int, written_ms: int, *, until: float = 1.0, entries_max: int | None = None) -> Ran:
        """Check entries, and remove what had expired by ``now_ms``, up to the end of the round; at least one step.

        It also stops after `_GROUPS_MAX` key groups, which cost no checks if they are skipped.

        Args:
            checks_max: Stop after so many checks (at least 1). Opening a key group counts as some.
            now_ms: Processing time of a committed batch.
            written_ms: All that was written before this processing time is in the store.
            until: Stop at this progress.
            entries_max: Stop after so many entries (at least 1).

        Raises:
            UnavailableError: The store cannot be written; run again.
        """
        checks = entries = groups = 0
        while True:
            if self._visit is None:
                self._visit = self._opened(self._group, now_ms, written_ms)
                checks += _SEEK_CHECKS if self._visit is not None else 0
            if self._visit is not None:
                room = max(1, checks_max - checks)
                swept, ended = self._check(self._visit, room if entries_max is None else min(room, entries_max - entries), now_ms)
                checks += swept.checks
                entries += swept.entries
                if ended:
                    self._visit = None
            if self._visit is None:
                groups += 1
                self._group = (self._group + 1) % len(self._sizes)
                if not self._group:
                    return Ran(checks, entries, True, self._places.most_at_once())
            if (
                checks >= checks_max
                or groups >= _GROUPS_MAX
                or self.progress >= until
                or (entries_max is not None and entries >= entries_max)
            ):
                return Ran(checks, entries, False)

    def run_round(self, now_ms: int, written_ms: int) -> None:
        """Remove all that had expired by ``now_ms``, without effect on the progress; arguments and errors as in `run`."""
        for group in range(len(self._sizes)):
            visit = self._opened(group, now_ms, written_ms)
            while visit is not None and not self._check(visit, _ROUND_CHECKS, now_ms)[1]:
                pass

    def _opened(self, group: int, now_ms: int, written_ms: int) -> _Visit | None:
        """Begin to visit a key group; None if nothing there can have expired."""
        if now_ms < self._calm_until_ms[group]:
            return None
        return _Visit(group, state_range(self._first + group, self._state_id), min(now_ms, written_ms))

    def _check(self, visit: _Visit, checks_max: int, now_ms: int) -> tuple[Swept, bool]:
        """Check the next entries of a key group; returns what was found, and whether they were the last ones."""
        scan = self._store.scan if self._rocksdb is None else self._rocksdb.scan_unchecked
        entries = islice(scan(visit.position, visit.end), checks_max)
        swept = self._state.swept(entries, now_ms, checks_max)
        ended = swept.entries < checks_max and next(entries, None) is None
        if ended and self._rocksdb is not None:
            ended = self._rocksdb.check_end(swept.last or visit.position, visit.end)
        if swept.deletes:
            self._delete(swept.deletes)
        if swept.rewritten:
            self._store.write(swept.rewritten)
        self.expired += swept.expired
        visit.seen += swept.entries
        visit.checks += swept.checks
        visit.left += swept.entries - len(swept.deletes)
        if swept.next_expiry_ms is not None:
            visit.earliest_ms = swept.next_expiry_ms if visit.earliest_ms is None else min(visit.earliest_ms, swept.next_expiry_ms)
        if ended:
            calm_until_ms = visit.seen_until_ms + self._ttl_ms
            self._calm_until_ms[visit.group] = calm_until_ms if visit.earliest_ms is None else min(calm_until_ms, visit.earliest_ms)
            self._seen_until_ms[visit.group] = visit.seen_until_ms
            self._earliest_ms[visit.group] = visit.earliest_ms
            self._sizes[visit.group] = visit.left
            self._places.add(visit.group / len(self._sizes), visit.checks - self._weights[visit.group])
            self._weights[visit.group] = visit.checks
        elif swept.last is not None:
            visit.position = swept.last + b"\0"
        return swept, ended

    def _delete(self, keys: list[bytes]) -> None:
        if self._rocksdb is not None:
            self._rocksdb.delete_in_order(keys)
        else:
            self._store.write((key, None) for key in keys)
