"""TimerQueue: the timers of one kind, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import group_prefix, state_range
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.key_context import KeyContext, no_current_key

_TIMER_VALUE: Final = b"\x01"
_TIMER_BYTES: Final = 240
"""Memory of one changed timer: its bytes, its place in the dict and in the heap."""
_BEFORE_ALL: Final = bytes(8)
"""The first time of all."""
_AHEAD_TIMERS: Final = 512
"""Timers of a key group that are read at once, at most: a scan of RocksDB costs as much as a hundred of them."""
_AHEAD_TIMERS_FIRST: Final = 16
_AHEAD_BYTES: Final = 16 << 10
"""About what the timers of a key group take that are read ahead; beyond the first ones, fewer large ones are."""
_CHANGED_SHARE: Final = 8
"""If more timers than this share of those read ahead change, they are read again."""
_PUSHED_SHARE: Final = 8
"""Fewer new timers than this share of the heap are pushed one by one; for more the heap is made again."""
SIGN: Final = 1 << 63
"""Added to a time, so that bytes have its order."""

DueTimer = tuple[int, Any, bytes]
"""(timestamp in ms, key, the key's ident)"""


class _Front:
    """The first stored timer of one key group.

    Attributes:
        at: No stored timer of the group that has not fired comes before it; None when there are no more. Its bytes after the time begin with those of the group.
        ahead: The next timers in reverse order, read from the store; the last one is ``at``. Empty when not read.
        changed: Timers up to the first of ``ahead`` that have been stored or deleted since it was read.
    """

    __slots__ = ("ahead", "at", "changed", "group")

    def __init__(self, group: bytes) -> None:
        self.group = group
        self.at: bytes | None = _BEFORE_ALL + group
        self.ahead: list[bytes] = []
        self.changed: list[bytes] = []

    def due(self, end: bytes) -> list[bytes]:
        """Return the timers below ``end`` that have been read."""
        return [timer for timer in self.ahead if timer < end]

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


class TimerQueue:
    """The timers of one kind. A timer is ``timestamp u64 with the sign flipped | key group u16 | key``: bytes in firing order.

    The store keeps the timers of each key group in order. In memory are what the running batch changed, and per key group a
    lower bound of what is stored and the few timers read ahead, so asking for due timers when there are none costs one comparison.

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
        "_queue",
        "_read_states",
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
        self._fronts = {group: _Front(group) for group in groups}
        # Of each front its ``at``; entries whose front has moved meanwhile are stale and skipped.
        self._queue: list[bytes] = [_BEFORE_ALL + group for group in groups]
        # No front stands below it, while nothing has moved one back.
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

    def due(self, end: bytes, decode: Callable[[bytes], Any]) -> Iterator[DueTimer]:
        """Yield and remove the timers below ``end`` in order; see `TimerTable.due`. ``decode`` makes keys of their bytes."""
        self._expect(end)
        self._expected = None
        fronts, from_bytes = self._fronts, int.from_bytes
        while True:
            timer = None
            added, queue = self._added, self._queue
            if queue and not self._new:
                at = queue[0]
                group = at[8:10]
                front = fronts[group]
                ahead = front.ahead
                if at < end and front.at == at and ahead and at not in self._changed and (not added or at < added[0]):
                    # A stored timer that nothing comes before, as nearly all are: what `_popped` does, without its calls.
                    ahead.pop()
                    front.at = ahead[-1] if ahead else at + b"\0"
                    heapreplace(queue, front.at)
                    if group not in self._before:
                        self._before[group] = at
                    self._changed[at] = False
                    timer = at
            if timer is None and (timer := self._popped(end)) is None:
                self._passed = end
                return
            yield from_bytes(timer[:8], "big") - SIGN, decode(timer[10:]), timer[8:]

    def read_ahead(self, end: bytes) -> None:
        """Read the first timers below ``end`` and the states of their keys; see `TimerTable.read_ahead`."""
        for front in self._fronts.values():
            if front.at is not None and front.at < end and not front.ahead:
                self._read_ahead(front, front.at)
        self._expected = None
        if self._expect(end):
            self._expected = end

    def _expect(self, end: bytes) -> bool:
        """Read the states of keys whose timers below ``end`` were read by an earlier call, when they were not due yet.

        Returns:
            False if the cache had no room for all of them.
        """
        if self._expected == end or not self._queue or self._queue[0] >= end:
            return True
        idents = [timer[8:] for front in self._fronts.values() if front.ahead and front.ahead[-1] < end for timer in front.due(end)]
        return not idents or self._read_states(idents) == len(idents)

    def _popped(self, end: bytes) -> bytes | None:
        """Remove and return the first timer if it is below ``end``."""
        timer = self._first_stored(end)
        added = self._first_added()
        if added is not None and added < end and (timer is None or added < timer):
            self._remove(added)
            return added
        if timer is not None:
            self._pass_stored(timer)
            self._remove(timer)
        return timer

    def first(self) -> bytes | None:
        """Return the first timer."""
        stored, added = self._first_stored(None), self._first_added()
        return added if stored is None or (added is not None and added < stored) else stored

    def changes(self) -> list[Change]:
        state_id = self._state_id.to_bytes(2, "big")
        return [
            (timer[8:10] + state_id + timer[:8] + timer[10:], _TIMER_VALUE if there else None) for timer, there in self._changed.items()
        ]

    def changed_bytes(self) -> int:
        return len(self._changed) * _TIMER_BYTES

    def recount(self) -> None:
        """Do nothing: the estimate is exact."""

    def cached_bytes(self) -> int:
        return 0

    def age(self) -> None:
        """Do nothing: what is read ahead is bounded."""

    def spilled(self) -> None:
        for timer in self._changed:
            group = timer[8:10]
            self._before.setdefault(group, self._fronts[group].at)
        self._take_in_changed()

    def commit(self) -> None:
        self._expected = None
        self._take_in_changed()
        self._before = {}

    def rollback(self, *, spilled: bool) -> None:
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
        self._queue = [front.at for front in self._fronts.values() if front.at is not None]
        heapify(self._queue)

    def prefetch(self, idents: Sequence[bytes]) -> None:
        """Do nothing: timers are read in time order."""

    def entry_count(self) -> int:
        return len(self._changed) + sum(len(front.ahead) for front in self._fronts.values())

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

    def _first_stored(self, end: bytes | None) -> bytes | None:
        """Return the first stored timer that the running batch has not changed if it is below ``end``; of those the states are read ahead."""
        queue, changed = self._queue, self._changed
        while queue:
            at = queue[0]
            if end is not None and at >= end:
                return None
            front = self._fronts[at[8:10]]
            if front.at != at:
                heappop(queue)
            elif not front.ahead:
                heappop(queue)
                self._read_ahead(front, at)
                if end is not None and (due := front.due(end)):
                    self._read_states([timer[8:] for timer in due])
            elif at in changed:
                # Deleted, or added again and then found among the added.
                self._pass_stored(at)
            else:
                return at
        return None

    def _read_ahead(self, front: _Front, at: bytes) -> None:
        first, end = state_range(front.group[0] << 8 | front.group[1], self._state_id)
        first += at[:8] + at[10:]
        entries = self._layers.scan(first, end)
        at_first = min(_AHEAD_TIMERS_FIRST, _AHEAD_TIMERS)
        keys = [store_key for store_key, _ in islice(entries, at_first)]
        if len(keys) == at_first:
            keys += [store_key for store_key, _ in islice(entries, _affordable(keys) - at_first)]
        front.ahead = [store_key[4:12] + front.group + store_key[12:] for store_key in reversed(keys)]
        front.at = front.ahead[-1] if front.ahead else None
        if front.at is not None:
            heappush(self._queue, front.at)

    def _pass_stored(self, timer: bytes) -> None:
        """Advance the front that is at ``timer`` and first in the queue."""
        group = timer[8:10]
        front = self._fronts[group]
        self._before.setdefault(group, timer)
        front.ahead.pop()
        front.at = at = front.ahead[-1] if front.ahead else timer + b"\0"
        heapreplace(self._queue, at)

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
                heappush(self._queue, front.at)
        self._changed = {}
        self._added, self._new = [], []
        self._passed = b""


def _affordable(timers: Sequence[bytes]) -> int:
    """Return how many timers of the size of these are read ahead of a key group."""
    return min(max(_AHEAD_TIMERS_FIRST, _AHEAD_BYTES // max(map(len, timers))), _AHEAD_TIMERS)


def _out_of_bounds() -> InvalidInputError:
    return InvalidInputError("not a signed 64-bit number of milliseconds", field="timestamp")
