"""TimerQueue: the timers of one kind, in memory that does not grow with their number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.idents import key_group_of_ident
from statefulspark.state.encoding.layout import group_prefix, state_range
from statefulspark.state.encoding.store_keys import timer_keys
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.key_context import KeyContext, no_current_key
from statefulspark.state.timer_front import AFTER_ALL, TimerFront

_TIMER_VALUE: Final = b"\x01"
_TIMER_BYTES: Final = 240
"""Memory of one changed timer: its bytes, its place in the dict and in the heap."""
_STATES_AT_ONCE: Final = 4096
"""Due timers for whose keys states are read at once, at most."""
_CHANGED_SHARE: Final = 8
"""If more timers than this share of those read ahead change, they are read again."""
_PUSHED_SHARE: Final = 8
"""Fewer new timers than this share of the heap are pushed one by one; for more the heap is made again."""
SIGN: Final = 1 << 63
"""Added to a time, so that bytes have its order."""

DueTimer = tuple[int, Any, bytes]
"""(timestamp in ms, key, the key's ident)"""


class TimerQueue:
    """The timers of one kind. A timer is ``timestamp u64 with the sign flipped | key group u16 | key``: bytes in firing order.

    The store keeps the timers of each key group in order. In memory are what the running batch changed, and per key group a
    lower bound of what is stored and the few timers read ahead (`TimerFront`). Those that are due are sorted together, as far as all are known.

    Args:
        context: The backend's.
        layers: The backend's.
        state_id: Of this kind.
        key_groups: The slot's.
        read_states: Reads the states of keys, given as idents, whose timers will fire soon, and returns for how many the cache had room.

    Attributes:
        registered: Calls of `register` so far, including those that changed nothing or were rolled back.
    """

    __slots__ = (
        "_added",
        "_before",
        "_changed",
        "_context",
        "_expected",
        "_fronts",
        "_layers",
        "_new",
        "_passed",
        "_read_states",
        "_run",
        "_state_id",
        "hits",
        "misses",
        "registered",
    )

    def __init__(
        self,
        context: KeyContext,
        layers: Layers,
        state_id: int,
        key_groups: KeyGroupRange,
        read_states: Callable[[list[bytes]], int],
    ) -> None:
        self._context = context
        self._layers = layers
        self._state_id = state_id
        self._read_states = read_states
        self.registered = 0
        self._changed: dict[bytes, bool] = {}
        # Registered in the running batch: a heap, and those that `_first_added` has yet to put into it. Rows do not ask for the first timer.
        self._added: list[bytes] = []
        self._new: list[bytes] = []
        groups = [group_prefix(group) for group in range(key_groups.first, key_groups.last + 1)]
        self._fronts = {group: TimerFront(group) for group in groups}
        # The next timers of all fronts in reverse order, while they are due: taken from their fronts, and not among the changed ones.
        self._run: list[bytes] = []
        # No front stands below it.
        self._passed = b""
        # Where fronts stood before the running batch moved them.
        self._before: dict[bytes, bytes | None] = {}
        # The end that `read_ahead` was last given, if the states of all timers below it that were read are in the cache.
        self._expected: bytes | None = None
        # Timers are read in time order and not looked up by key.
        self.hits = self.misses = 0

    def register(self, timestamp_ms: int) -> None:
        """Let a timer of the current key fire when the clock of this kind reaches ``timestamp_ms`` (a signed 64-bit number).

        One key has at most one timer of a kind and timestamp; registering it again changes nothing.

        Raises:
            InvalidInputError: No key is current, or the timestamp is out of bounds.
        """
        context, changed = self._context, self._changed
        ident = context.ident
        if ident is None:
            raise no_current_key()
        try:
            timer = (timestamp_ms + SIGN).to_bytes(8, "big") + ident
        except OverflowError:
            raise _out_of_bounds() from None
        self.registered += 1
        if changed.get(timer):
            return
        changed[timer] = True
        self._new.append(timer)
        context.growth_bytes += _TIMER_BYTES
        if context.growth_bytes > context.growth_bytes_max:
            context.relieve()

    def delete(self, timestamp_ms: int) -> None:
        """Delete a timer of the current key; absent ones are fine. Errors as in `register`."""
        ident = self._context.ident
        if ident is None:
            raise no_current_key()
        try:
            timer = (timestamp_ms + SIGN).to_bytes(8, "big") + ident
        except OverflowError:
            raise _out_of_bounds() from None
        if timer not in self._changed:
            self._context.grow(_TIMER_BYTES)
        self._remove(timer)

    def register_all(self, timestamps_ms: Sequence[int], idents: Sequence[bytes]) -> None:
        """Register a timer each for keys, given by their idents; the timestamps are within bounds."""
        changed = self._changed
        timers = [(timestamp_ms + SIGN).to_bytes(8, "big") + ident for timestamp_ms, ident in zip(timestamps_ms, idents, strict=True)]
        self.registered += len(timers)
        added = [timer for timer in timers if not changed.get(timer)]
        changed.update(dict.fromkeys(added, True))
        self._new += added
        self._context.grow(len(added) * _TIMER_BYTES)

    def delete_all(self, timestamps_ms: Sequence[int], idents: Sequence[bytes]) -> None:
        """Delete a timer each of keys, given by their idents; absent ones are fine."""
        for timestamp_ms, ident in zip(timestamps_ms, idents, strict=True):
            self._remove((timestamp_ms + SIGN).to_bytes(8, "big") + ident)
        self._context.grow(len(idents) * _TIMER_BYTES)

    def due_together(self, end: bytes, count_max: int, *, distinct: bool = False) -> Iterator[list[bytes]]:
        """Yield and remove the timers below ``end`` in order, up to ``count_max`` at a time, whose states are not read.

        The caller registers and deletes none below ``end``. With ``distinct`` it may, and of a key there is one timer at a time.
        """
        self._put_back()
        self._expected = None
        run = self._run
        while True:
            if not run:
                self._fill_run(end)
            changed = self._changed  # another one after a spill
            added = self._first_added() if self._new or self._added else None
            bound = end if added is None or added > end else added
            if run and run[-1] < bound:
                taken = run[: -min(count_max, len(run)) - 1 : -1]
                if bound < end:
                    del taken[bisect_left(taken, bound) :]
                if distinct:
                    del taken[_first_repeated(taken) :]
                del run[-len(taken) :]
                if timers := [timer for timer in taken if timer not in changed]:
                    changed.update(dict.fromkeys(timers, False))
                    yield timers
            elif added is None or added >= end:
                return
            else:
                self._remove(added)
                yield [added]

    def due(self, end: bytes, decode: Callable[[bytes], Any]) -> Iterator[DueTimer]:
        """Yield and remove the timers below ``end`` in order; see `TimerTable.due`. ``decode`` makes keys of their bytes."""
        self._put_back()
        run, from_bytes, unread = self._run, int.from_bytes, 0
        are_read, self._expected = self._expected == end, None
        while True:
            if not run and self._fill_run(end):
                unread, are_read = 0 if are_read else len(run), False
            timer = run[-1] if run else end
            if (self._new or self._added) and (added := self._first_added()) is not None and added < timer:
                timer = added
                self._remove(timer)
            elif not run:
                return
            else:
                if unread == len(run):
                    unread -= self._read_states([each[8:] for each in reversed(run[-_STATES_AT_ONCE:])])
                run.pop()
                if timer in self._changed:
                    continue  # deleted, or added again and then found among the added
                self._changed[timer] = False
            yield from_bytes(timer[:8], "big") - SIGN, decode(timer[10:]), timer[8:]

    def _fill_run(self, end: bytes) -> bool:
        """Move the first stored timers below ``end`` from their fronts to the run, as many as are known of each front.

        Returns:
            False if there are none.
        """
        if end <= self._passed:
            return False
        self._read_fronts(end)
        fronts = [front for front in self._fronts.values() if front.ahead and front.ahead[-1] < end]
        # What follows the last one that a front knows has not been read, and may come before timers of other fronts.
        bound = min([end, *(front.ahead[0] + b"\0" for front in fronts)])
        for front in fronts:
            if timers := front.taken(bound):
                self._before.setdefault(front.group, timers[-1])
                self._run += timers
        self._run.sort(reverse=True)
        if not self._run:
            self._passed = min((front.at for front in self._fronts.values() if front.at is not None), default=AFTER_ALL)
        return bool(self._run)

    def _put_back(self) -> None:
        """Return the timers of the run that have not been yielded to their fronts."""
        if self._run:
            for timer in self._run:
                front = self._fronts[timer[8:10]]
                front.ahead.append(timer)
                front.at = timer
            self._run.clear()
            self._passed = b""

    def _read_fronts(self, end: bytes) -> None:
        """Read the first timers of each front that may have one below ``end``, and of which none are known."""
        for front in self._fronts.values():
            if front.at is not None and front.at < end and not front.ahead:
                self._read_ahead(front, front.at)

    def read_ahead(self, end: bytes) -> None:
        """Read the first timers below ``end`` and the states of their keys; see `TimerTable.read_ahead`."""
        self._read_fronts(end)
        idents = [timer[8:] for front in self._fronts.values() if front.ahead and front.ahead[-1] < end for timer in front.due(end)]
        self._expected = end if not idents or self._read_states(idents) == len(idents) else None

    def first(self) -> bytes | None:
        """Return the first timer."""
        stored, added = self._first_stored(), self._first_added()
        return added if stored is None or (added is not None and added < stored) else stored

    def changes(self) -> list[Change]:
        keys, positions = timer_keys(list(self._changed), self._state_id)
        there = map(list(self._changed.values()).__getitem__, positions)
        return list(zip(keys, map((None, _TIMER_VALUE).__getitem__, there), strict=True))

    def changed_bytes(self) -> int:
        return len(self._changed) * _TIMER_BYTES

    def recount(self) -> None:
        """Do nothing: the estimate is exact."""

    def cached_bytes(self) -> int:
        return 0

    def age(self) -> None:
        """Do nothing: what is read ahead is bounded."""

    def spilled(self) -> None:
        self._put_back()
        for timer in self._changed:
            group = timer[8:10]
            self._before.setdefault(group, self._fronts[group].at)
        self._take_in_changed()

    def commit(self) -> None:
        self._put_back()
        self._expected = None
        self._take_in_changed()
        self._before = {}

    def rollback(self, *, spilled: bool) -> None:
        self._run.clear()
        self._changed = {}
        self._added, self._new = [], []
        # Every front that knows a spilled timer is among those that were moved.
        del spilled
        for group, at in self._before.items():
            front = self._fronts[group]
            front.ahead = []
            front.at = at
        self._before = {}
        self._passed = b""

    def prefetch(self, idents: Sequence[bytes]) -> None:
        """Do nothing: timers are read in time order."""

    def entry_count(self) -> int:
        return len(self._changed) + len(self._run) + sum(len(front.ahead) for front in self._fronts.values())

    def _remove(self, timer: bytes) -> None:
        group = timer[8:10]
        stored_from = self._before.get(group, self._fronts[group].at)
        if self._layers.spills == 0 and (stored_from is None or timer < stored_from):
            # It was never stored: forgetting it saves a useless delete in the changelog and the store.
            self._changed.pop(timer, None)
        else:
            self._changed[timer] = False

    def _first_added(self) -> bytes | None:
        """Return the first timer that the running batch has registered."""
        added, new, changed = self._added, self._new, self._changed
        if new:
            if len(new) < len(added) // _PUSHED_SHARE:
                for timer in new:
                    heappush(added, timer)
            else:
                added += new
                heapify(added)
            new.clear()
        while added and not changed.get(added[0]):
            heappop(added)
        return added[0] if added else None

    def _first_stored(self) -> bytes | None:
        """Return the first stored timer that the running batch has not changed."""
        self._put_back()
        changed, first = self._changed, None
        # With very many key groups, a pass over the fronts is short beside what reading them takes once.
        for front in self._fronts.values() if self._passed < AFTER_ALL else ():
            while front.at is not None and (first is None or front.at < first):
                if not front.ahead:
                    self._read_ahead(front, front.at)
                elif front.at not in changed:
                    first = front.at
                else:
                    # Deleted, or added again and then found among the added.
                    self._before.setdefault(front.group, front.at)
                    front.pass_changed(changed)
        return first

    def _read_ahead(self, front: TimerFront, at: bytes) -> None:
        first, end = state_range(key_group_of_ident(front.group), self._state_id)
        first += at[:8] + at[10:]
        front.read(self._layers.scan(first, end))

    def _take_in_changed(self) -> None:
        """Drop the changed timers, which are now in the layers below; let the fronts know those that they would miss or fire in vain."""
        moved = set()
        changed, fronts, passed = self._changed, self._fronts, self._passed
        for timer, there in changed.items():
            if timer < passed and not there:
                continue  # fired, as most of those that have gone
            front = fronts[timer[8:10]]
            at, ahead = front.at, front.ahead
            if not ahead:
                if there and (at is None or timer < at):
                    front.at = timer
                    moved.add(front)
            elif timer <= ahead[0] and (there or at is None or timer >= at):
                front.changed.append(timer)
                moved.add(front)
                if len(front.changed) > len(ahead) // _CHANGED_SHARE:
                    front.forget(changed)
        for front in moved:
            front.take_in(changed)
            if front.at is not None:
                self._passed = min(self._passed, front.at)
        self._changed = {}
        self._added, self._new = [], []


def _first_repeated(timers: Sequence[bytes]) -> int:
    """Return the position of the first timer whose key has one before it; their number if there is none."""
    if len({timer[8:] for timer in timers}) < len(timers):
        seen: set[bytes] = set()
        for position, timer in enumerate(timers):
            if timer[8:] in seen:
                return position
            seen.add(timer[8:])
    return len(timers)


def _out_of_bounds() -> InvalidInputError:
    return InvalidInputError("not a signed 64-bit number of milliseconds", field="timestamp")
