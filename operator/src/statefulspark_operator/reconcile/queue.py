"""The work queue: which jobs are to be looked at, and when. One job is never worked on twice at the same time."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError

_log = structlog.get_logger("statefulspark.operator.queue")
_RETRY_S: Final = 1.0
_RETRY_S_MAX: Final = 60.0
_AHEAD_S: Final = 60.0
"""What is added to be looked at now goes before looks that were due up to so long ago: somebody waits for it."""

_Place = tuple[float, float]
"""Where a key stands in the queue, and when it is due."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Calls ``work(key)`` for every key that was added, as often as needed, with a few workers.

    Args:
        work: Looks at one key; returns after how many seconds it wants to look again, None for never.
        workers: Keys worked on at the same time.
        observe: Told the queue's delay and the work's seconds of each look, and how it ended.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        *,
        workers: int,
        observe: Callable[[float, float, str], None],
    ) -> None:
        self._work = work
        self._free = asyncio.Semaphore(workers)
        self._observe = observe
        self._due: dict[K, _Place] = {}
        self._heap: list[tuple[_Place, int, K]] = []
        self._running: set[K] = set()
        self._failures: dict[K, int] = {}
        self._tickets = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Keys that are due now or later."""
        return len(self._due)

    def add(self, key: K, after_s: float = 0.0) -> None:
        """Look at ``key`` after ``after_s`` seconds at the latest."""
        due = asyncio.get_running_loop().time() + max(0.0, after_s)
        place = (due if after_s > 0 else due - _AHEAD_S, due)
        if place >= self._due.get(key, (float("inf"), 0.0)):
            return
        self._due[key] = place
        self._tickets += 1
        heapq.heappush(self._heap, (place, self._tickets, key))
        self._changed.set()

    def forget(self, key: K) -> None:
        """Look at ``key`` no more."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    async def run(self) -> None:
        """Work until cancelled."""
        # One waits for keys, not each free worker: a change would wake all of them.
        async with asyncio.TaskGroup() as group:
            while True:
                await self._free.acquire()
                key, due = await self._next()
                self._running.add(key)
                group.create_task(self._one(key, due))

    async def _one(self, key: K, due: float) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        outcome = "done"
        try:
            again_s = await self._work(key)
            self._failures.pop(key, None)
        except StatefulSparkError as error:
            outcome = type(error).__name__.removesuffix("Error")
            again_s = self._pause_s(key, error)
            _log.warning("look failed", key=str(key), again_s=round(again_s, 1), error=str(error)[:500])
        except Exception:  # noqa: BLE001  whatever it is, it is logged and tried again
            # A defect met by one job must not stop the others, nor the operator.
            outcome = "Internal"
            again_s = self._pause_s(key, None)
            _log.exception("look failed", key=str(key), again_s=round(again_s, 1))
        finally:
            self._running.discard(key)
            self._free.release()
            self._changed.set()
        self._observe(begun - due, loop.time() - begun, outcome)
        if again_s is not None:
            self.add(key, again_s)

    async def _next(self) -> tuple[K, float]:
        loop = asyncio.get_running_loop()
        while True:
            put_back = []
            try:
                while self._heap and self._heap[0][0][0] <= loop.time():
                    place, ticket, key = heapq.heappop(self._heap)
                    if self._due.get(key) != place:
                        continue  # it was looked at meanwhile, or became due earlier
                    if key in self._running:
                        put_back.append((place, ticket, key))
                        continue
                    del self._due[key]
                    return key, place[1]
            finally:
                for entry in put_back:
                    heapq.heappush(self._heap, entry)
            self._changed.clear()
            waiting = self._heap[0][0][0] - loop.time() if self._heap and not put_back else None
            try:
                await asyncio.wait_for(self._changed.wait(), timeout=max(0.0, waiting) if waiting is not None else 1.0)
            except TimeoutError:
                continue

    def _pause_s(self, key: K, error: StatefulSparkError | None) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if isinstance(error, ConflictError):
            return 0.2 * failures if failures < 10 else _RETRY_S_MAX
        factor = 10.0 if isinstance(error, InvalidInputError) else _RETRY_S
        # With jitter, so that jobs that failed together do not come back together.
        return min(_RETRY_S_MAX, factor * float(1 << min(failures - 1, 10))) * random.uniform(0.8, 1.2)
