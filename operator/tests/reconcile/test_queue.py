"""The work queue: every key is worked on, never twice at the same time, again after a failure, and one bad key does not stop the others."""

from __future__ import annotations

import asyncio
from collections import Counter

from statefulspark.errors import UnavailableError
from statefulspark_operator.reconcile.queue import WorkQueue


async def until(condition: object, *, turns: int = 2000) -> None:
    assert callable(condition)
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("did not come to be")


def test_a_key_added_while_it_is_worked_on_is_worked_on_again_afterwards() -> None:
    async def scenario() -> None:
        running: Counter[str] = Counter()
        looks: list[str] = []
        gate = asyncio.Event()

        async def work(key: str) -> float | None:
            running[key] += 1
            assert running[key] == 1, "twice at the same time"
            await gate.wait()
            running[key] -= 1
            looks.append(key)
            return None

        queue: WorkQueue[str] = WorkQueue(work, workers=4, observe=lambda *_: None)
        task = asyncio.create_task(queue.run())
        queue.add("a")
        await until(lambda: running["a"] == 1)
        queue.add("a")
        queue.add("a")
        queue.add("b")
        await until(lambda: running["b"] == 1)
        gate.set()
        await until(lambda: sorted(looks) == ["a", "a", "b"])
        assert len(queue) == 0
        task.cancel()

    asyncio.run(scenario())


def test_a_failing_key_comes_back_and_holds_up_nobody() -> None:
    async def scenario() -> None:
        outcomes: list[str] = []
        tries: Counter[str] = Counter()

        async def work(key: str) -> float | None:
            tries[key] += 1
            if key == "bad":
                raise UnavailableError("no") if tries[key] == 1 else ZeroDivisionError
            return 0.0 if tries[key] < 50 else None

        queue: WorkQueue[str] = WorkQueue(work, workers=2, observe=lambda waited, took, outcome: outcomes.append(outcome))
        task = asyncio.create_task(queue.run())
        queue.add("bad")
        queue.add("good")
        await until(lambda: tries["good"] == 50)
        await until(lambda: tries["bad"] >= 2, turns=4000)
        assert {"Unavailable", "done"} <= set(outcomes)
        await until(lambda: "Internal" in outcomes)
        assert not task.done(), "a defect met by one key ends nothing"
        task.cancel()

    asyncio.run(scenario())


def test_the_earlier_of_two_times_counts() -> None:
    async def scenario() -> None:
        looks: list[str] = []

        async def work(key: str) -> float | None:
            looks.append(key)
            return None

        queue: WorkQueue[str] = WorkQueue(work, workers=1, observe=lambda *_: None)
        task = asyncio.create_task(queue.run())
        queue.add("a", 3600)
        queue.add("a", 0.01)
        queue.add("a", 7200)
        await until(lambda: looks == ["a"])
        assert len(queue) == 0
        task.cancel()

    asyncio.run(scenario())


def test_what_is_added_now_goes_before_what_was_due_by_time() -> None:
    """A change that somebody waits for is not held up by a backlog of looks that only time has brought, nor do those starve."""

    async def scenario() -> None:
        looks: list[str] = []

        async def work(key: str) -> float | None:
            looks.append(key)
            return None

        queue: WorkQueue[str] = WorkQueue(work, workers=1, observe=lambda *_: None)
        for number in range(5):
            queue.add(f"due-{number}", 0.001)
        queue.add("both", 0.001)
        await asyncio.sleep(0.01)
        queue.add("now")
        queue.add("both")
        task = asyncio.create_task(queue.run())
        await until(lambda: len(looks) == 7)
        assert looks[:2] == ["now", "both"]
        assert len(queue) == 0
        task.cancel()

    asyncio.run(scenario())
