"""The work queue: which keys are due for reconciliation, and when. A key is never processed twice at the same time."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError, UnavailableError

_log = structlog.get_logger("statefulspark.operator.queue")
_RETRY_S: Final = 1.0
_RETRY_S_MAX: Final = 60.0
_AHEAD_S: Final = 60.0
"""A key added for immediate processing is scheduled ahead of resyncs that have been due for up to this long: a user may be waiting for it."""

_DEADLINE_S: Final = 60.0
_STUCK: Final = 3.0
"""Number of deadlines after which running work, or a queue without progress, indicates a defect of this process."""

_Place = tuple[float, float]
"""Priority of a key in the queue, and when it is due."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Calls ``work(key)`` for every added key, with a limited number of workers.

    Keys of one lane may hold as many workers as are free at that moment (a dynamic threshold: one lane alone gets half of them, ``n``
    lanes that want all get an equal share each, and one share stays free). So a tenant whose jobs take all the time they are given
    slows down no other.

    Args:
        work: Processes one key. Returns the seconds until the key must be processed again, or None for never.
        workers: Number of keys processed concurrently.
        observe: Called after each call of ``work`` with its delay in the queue, its duration (both in seconds) and its outcome.
        lane: Maps a key to the group that shares workers, for example its namespace. Defaults to one group per key.
        deadline_s: Work that takes longer is cancelled and retried later.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        *,
        workers: int,
        observe: Callable[[float, float, str], None],
        lane: Callable[[K], Hashable] | None = None,
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        self._work = work
        self._free = workers
        self._observe = observe
        self._lane = lane or _of_its_own
        self._deadline_s = deadline_s
        self._due: dict[K, _Place] = {}
        self._lanes: dict[Hashable, list[tuple[_Place, int, K]]] = {}
        self._busy: Counter[Hashable] = Counter()
        self._running: dict[K, float] = {}
        """Keys that are being processed, and since when."""
        self._failures: dict[K, int] = {}
        self._tickets = 0
        self._changed = asyncio.Event()
        self._took_at = 0.0

    def __len__(self) -> int:
        """Number of keys that are due now or later."""
        return len(self._due)

    def add(self, key: K, after_s: float = 0.0) -> None:
        """Requeue ``key`` within ``after_s`` seconds."""
        due = asyncio.get_running_loop().time() + max(0.0, after_s)
        place = (due if after_s > 0 else due - _AHEAD_S, due)
        if place >= self._due.get(key, (float("inf"), 0.0)):
            return
        self._due[key] = place
        self._tickets += 1
        heapq.heappush(self._lanes.setdefault(self._lane(key), []), (place, self._tickets, key))
        self._changed.set()

    def forget(self, key: K) -> None:
        """Remove ``key`` from the queue."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    def problem(self) -> str | None:
        """Reason why the queue makes no progress; None if it does. Slow work is not a problem, because its deadline ends it."""
        now, limit_s = asyncio.get_running_loop().time(), self._deadline_s * _STUCK
        if self._running and (longest_s := now - min(self._running.values())) > limit_s:
            return f"a reconciliation has been running for {longest_s:.0f} s, far beyond its deadline"
        oldest = min((due for _, due in self._due.values()), default=now)
        if now - max(oldest, self._took_at) > limit_s:
            return f"the oldest queued key has waited for {now - oldest:.0f} s and the queue makes no progress"
        return None

    async def run(self) -> None:
        """Process keys until cancelled."""
        # A single task waits for keys; if each free worker waited, every change would wake all of them.
        async with asyncio.TaskGroup() as group:
            while True:
                key, due = await self._next()
                self._took_at = self._running[key] = asyncio.get_running_loop().time()
                self._busy[self._lane(key)] += 1
                self._free -= 1
                group.create_task(self._one(key, due))

    async def _one(self, key: K, due: float) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        outcome = "done"
        try:
            again_s = await self._within_deadline(key)
            self._failures.pop(key, None)
        except StatefulSparkError as error:
            outcome = type(error).__name__.removesuffix("Error")
            again_s = self._pause_s(key, error)
            # A conflict means that the object changed since it was read; the next attempt reads it again.
            log = _log.info if isinstance(error, ConflictError) else _log.warning
            log("reconciliation failed", key=str(key), requeue_after_s=round(again_s, 1), error=str(error)[:500])
        except Exception:  # noqa: BLE001  whatever it is, it is logged and tried again
            # A bug triggered by one job must not stop the others or the operator.
            outcome = "Internal"
            again_s = self._pause_s(key, None)
            _log.exception("reconciliation failed", key=str(key), requeue_after_s=round(again_s, 1))
        finally:
            self._ended(key)
        self._observe(begun - due, loop.time() - begun, outcome)
        if again_s is not None:
            self.add(key, again_s)

    async def _within_deadline(self, key: K) -> float | None:
        deadline = asyncio.timeout(self._deadline_s)
        try:
            async with deadline:
                return await self._work(key)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            # The transition in progress is in the status; the next reconciliation continues it, as after a restart of the operator.
            raise UnavailableError(f"the reconciliation was cancelled after {self._deadline_s:.0f} s") from error

    def _ended(self, key: K) -> None:
        lane = self._lane(key)
        del self._running[key]
        self._busy[lane] -= 1
        if not self._busy[lane]:
            del self._busy[lane]
        self._free += 1
        self._changed.set()

    async def _next(self) -> tuple[K, float]:
        loop = asyncio.get_running_loop()
        while True:
            ready = self._ready(loop.time())
            if ready is not None:
                return ready
            self._changed.clear()
            starts = [heap[0][0][0] for lane, heap in self._lanes.items() if self._has_room(lane)]
            waiting_s = min(starts) - loop.time() if starts else None
            # A due key that is being processed waits for that to end, which also sets the event.
            timeout = 1.0 if waiting_s is not None and waiting_s <= 0 else waiting_s
            try:
                await asyncio.wait_for(self._changed.wait(), timeout)
            except TimeoutError:
                continue

    def _has_room(self, lane: Hashable) -> bool:
        return self._busy[lane] < self._free

    def _ready(self, now: float) -> tuple[K, float] | None:
        """Takes the next due key: from the lane with the fewest workers among those with capacity, and among equals the oldest."""
        lanes = [lane for lane, heap in self._lanes.items() if heap[0][0][0] <= now and self._has_room(lane)]
        for lane in sorted(lanes, key=lambda each: (self._busy[each], self._lanes[each][0][0])):
            taken = self._take(lane, now)
            if taken is not None:
                return taken
        return None

    def _take(self, lane: Hashable, now: float) -> tuple[K, float] | None:
        heap, put_back, taken = self._lanes[lane], [], None
        while heap and heap[0][0][0] <= now and taken is None:
            place, ticket, key = heapq.heappop(heap)
            if self._due.get(key) != place:
                continue  # already processed, or rescheduled to an earlier time
            if key in self._running:
                put_back.append((place, ticket, key))
                continue
            del self._due[key]
            taken = key, place[1]
        for entry in put_back:
            heapq.heappush(heap, entry)
        if not heap:
            del self._lanes[lane]
        return taken

    def _pause_s(self, key: K, error: StatefulSparkError | None) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if isinstance(error, ConflictError):
            return 0.2 * failures if failures < 10 else _RETRY_S_MAX
        factor = 10.0 if isinstance(error, InvalidInputError) else _RETRY_S
        # Jitter keeps jobs that failed together from retrying together.
        return min(_RETRY_S_MAX, factor * float(1 << min(failures - 1, 10))) * random.uniform(0.8, 1.2)


def _of_its_own(key: Hashable) -> Hashable:
    return key
