"""Timers of one keyed step: registers, deletes and fires them in order, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import group_prefix, state_range
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.key_context import KeyContext, no_current_key

EVENT_TIMERS: Final = "event-timers"
PROCESSING_TIMERS: Final = "processing-timers"
TIMER_KINDS: Final = (EVENT_TIMERS, PROCESSING_TIMERS)

TIMESTAMP_MS_MIN: Final = -(1 << 63)
TIMESTAMP_MS_MAX: Final = (1 << 63) - 1

_TIMER_VALUE: Final = b"\x01"
_TIMER_BYTES: Final = 240
"""Memory of one changed timer: its bytes, its place in the dict and in the heap."""
_AHEAD_TIMERS: Final = 64
_PUSHED_SHARE: Final = 8
"""Fewer new timers than this share of the heap are pushed one by one; for more the heap is made again."""
_AFTER_ALL: Final = b"\xff" * 9
"""Above every timer."""
_SIGN: Final = 1 << 63

DueTimer = tuple[int, int, Any, bytes]
"""(timestamp in ms, key group, key, the key's ident)"""


class TimerTable:
    """The timers of both kinds.

    Args:
        kinds: By kind, its queue.
        key_codec: Of the step's keys.
    """

    __slots__ = ("_key_codec", "_kinds")

    def __init__(self, kinds: dict[str, TimerQueue], key_codec: KeyCodec) -> None:
        self._kinds = kinds
        self._key_codec = key_codec

    @property
    def registered(self) -> int:
        """Timers registered so far, including those that changed nothing or were rolled back."""
        return sum(queue.registered for queue in self._kinds.values())

    def queue(self, kind: str) -> TimerQueue:
        """Return the timers of one kind; InvalidInputError if there is no such kind."""
        try:
            return self._kinds[kind]
        except KeyError:
            raise InvalidInputError(f"unknown kind of timers {kind!r}", field="kind", remedy=f"Use {' or '.join(self._kinds)}.") from None

    def register(self, kind: str, timestamp_ms: int) -> None:
        """Register a timer of the current key; see `TimerQueue.register`."""
        self.queue(kind).register(timestamp_ms)

    def delete(self, kind: str, timestamp_ms: int) -> None:
        """Delete a timer of the current key; see `TimerQueue.delete`."""
        self.queue(kind).delete(timestamp_ms)

    def due(self, kind: str, up_to_ms: int) -> Iterator[DueTimer]:
        """Yield and remove the timers with a timestamp of at most ``up_to_ms`` in the order of (timestamp, key group, key bytes).

        Timers may be registered and deleted meanwhile: a new one that is due too comes in its place, or next when that is past.
        """
        # Every timer is longer than 8 bytes, so those of the next millisecond are above the end.
        end = max(0, up_to_ms + 1 + _SIGN).to_bytes(8, "big") if up_to_ms < TIMESTAMP_MS_MAX else _AFTER_ALL
        return self.queue(kind).due(end, self._key_codec.decode)

    def min_timestamp(self, kind: str) -> int | None:
        """Return the earliest timestamp, None without timers. After `finish_batch` it counts that batch's changes."""
        timer = self.queue(kind).first()
        return None if timer is None else int.from_bytes(timer[:8], "big") - _SIGN


def _out_of_bounds() -> InvalidInputError:
    return InvalidInputError("not a signed 64-bit number of milliseconds", field="timestamp")


class _Front:
    """The first stored timer of one key group.

    Attributes:
        at: No stored timer of the group that has not fired comes before it; None when there are no more.
        ahead: The next timers in reverse order, read from the store; the last one is ``at``. Empty when not read.
    """

    __slots__ = ("ahead", "at", "group")

    def __init__(self, group: bytes) -> None:
        self.group = group
        self.at: bytes | None = b""
        self.ahead: list[bytes] = []

    def due(self, end: bytes) -> list[bytes]:
        """Return the timers below ``end`` that have been read."""
        return [timer for timer in self.ahead if timer < end]


class TimerQueue:
    """The timers of one kind. A timer is ``timestamp u64 with the sign flipped | key group u16 | key``: bytes in firing order.

    The store keeps the timers of each key group in order. In memory are what the running batch changed, and per key group a
    lower bound of what is stored and the few timers read ahead, so asking for due timers when there are none costs one comparison.

    Args:
        context: The backend's.
        layers: The backend's.
        state_id: Of this kind.
        key_groups: The slot's.
        read_states: Reads the states of keys, given as idents, whose timers will fire soon.

    Attributes:
        registered: Calls of `register` so far, including those that changed nothing or were rolled back.
    """

    __slots__ = (
        "_added",
        "_before",
        "_changed",
        "_context",
        "_fronts",
        "_layers",
        "_new",
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
        read_states: Callable[[list[bytes]], object],
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
        # (front.at, group); entries whose front has moved meanwhile are stale and skipped.
        self._queue: list[tuple[bytes, bytes]] = [(b"", group) for group in groups]
        # Where fronts stood before the running batch moved them.
        self._before: dict[bytes, bytes | None] = {}
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
            timer = (timestamp_ms + _SIGN).to_bytes(8, "big") + ident
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
            timer = (timestamp_ms + _SIGN).to_bytes(8, "big") + ident
        except OverflowError:
            raise _out_of_bounds() from None
        if timer not in self._changed:
            self._context.grow(_TIMER_BYTES)
        self._remove(timer)

    def due(self, end: bytes, decode: Callable[[bytes], Any]) -> Iterator[DueTimer]:
        """Yield and remove the timers below ``end`` in order; see `TimerTable.due`. ``decode`` makes keys of their bytes."""
        self._expect(end)
        fronts, from_bytes = self._fronts, int.from_bytes
        while True:
            timer = None
            added, queue = self._added, self._queue
            if queue and not self._new:
                at, group = queue[0]
                front = fronts[group]
                ahead = front.ahead
                if at < end and front.at == at and ahead and at not in self._changed and (not added or at < added[0]):
                    # A stored timer that nothing comes before, as nearly all are: what `_popped` does, without its calls.
                    ahead.pop()
                    front.at = ahead[-1] if ahead else at + b"\0"
                    heapreplace(queue, (front.at, group))
                    if group not in self._before:
                        self._before[group] = at
                    self._changed[at] = False
                    timer = at
            if timer is None and (timer := self._popped(end)) is None:
                return
            yield from_bytes(timer[:8], "big") - _SIGN, timer[8] << 8 | timer[9], decode(timer[10:]), timer[8:]

    def _expect(self, end: bytes) -> None:
        """Read the states of keys whose timers below ``end`` were read by an earlier call, when they were not due yet."""
        if not self._queue or self._queue[0][0] >= end:
            return
        idents = [timer[8:] for front in self._fronts.values() if front.ahead and front.ahead[-1] < end for timer in front.due(end)]
        if idents:
            self._read_states(idents)

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
        self._queue = [(front.at, group) for group, front in self._fronts.items() if front.at is not None]
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
            at, group = queue[0]
            if end is not None and at >= end:
                return None
            front = self._fronts[group]
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
        if at:
            first += at[:8] + at[10:]
        keys = [store_key for store_key, _ in islice(self._layers.scan(first, end), _AHEAD_TIMERS)]
        front.ahead = [store_key[4:12] + front.group + store_key[12:] for store_key in reversed(keys)]
        front.at = front.ahead[-1] if front.ahead else None
        if front.at is not None:
            heappush(self._queue, (front.at, front.group))

    def _pass_stored(self, timer: bytes) -> None:
        """Advance the front that is at ``timer`` and first in the queue."""
        group = timer[8:10]
        front = self._fronts[group]
        self._before.setdefault(group, timer)
        front.ahead.pop()
        front.at = at = front.ahead[-1] if front.ahead else timer + b"\0"
        heapreplace(self._queue, (at, group))

    def _take_in_changed(self) -> None:
        """Drop the changed timers, which are now in the layers below; move back fronts that would miss one."""
        moved = set()
        for timer, there in self._changed.items():
            front = self._fronts[timer[8:10]]
            if front.at is None or timer < front.at:
                if there:
                    front.ahead = []
                    front.at = timer
                    moved.add(front.group)
            elif front.ahead and timer <= front.ahead[0]:
                front.ahead = []
        for group in moved:
            heappush(self._queue, (self._fronts[group].at or b"", group))
        self._changed = {}
        self._added, self._new = [], []
