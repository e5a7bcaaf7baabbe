"""The work queue: every key is worked on, never twice at the same time, again after a failure, and one bad key does not stop the others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import UnavailableError
from statefulspark_operator.reconcile.work_queue import WorkQueue


async def until(condition: object, *, turns: int = 2000) -> None:
    assert callable(condition)
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("did not come to be")


def recording() -> tuple[WorkQueue[str], list[str]]:
    """A queue with one worker, and the keys that it has worked on."""
    handled: list[str] = []

    async def work(key: str) -> None:
        handled.append(key)

    return WorkQueue(work, workers=1, observe=lambda *_: None), handled


def test_a_key_added_while_it_is_worked_on_is_worked_on_again_afterwards() -> None:
    async def scenario() -> None:
        running: Counter[str] = Counter()
        handled: list[str] = []
        gate = asyncio.Event()

        async def work(key: str) -> float | None:
            running[key] += 1
            assert running[key] == 1, "twice at the same time"
            await gate.wait()
            running[key] -= 1
            handled.append(key)
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
        await until(lambda: sorted(handled) == ["a", "a", "b"])
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
        queue, handled = recording()
        task = asyncio.create_task(queue.run())
        queue.add("a", 3600)
        queue.add("a", 0.01)
        queue.add("a", 7200)
        await until(lambda: handled == ["a"])
        assert len(queue) == 0
        task.cancel()

    asyncio.run(scenario())


def test_what_is_added_now_goes_before_what_was_due_by_time() -> None:
    """A change that somebody waits for is not held up by a backlog of looks that only time has brought, nor do those starve."""

    async def scenario() -> None:
        queue, handled = recording()
        for number in range(5):
            queue.add(f"due-{number}", 0.001)
        queue.add("both", 0.001)
        await asyncio.sleep(0.01)
        queue.add("now")
        queue.add("both")
        task = asyncio.create_task(queue.run())
        await until(lambda: len(handled) == 7)
        assert handled[:2] == ["now", "both"]
        assert len(queue) == 0
        task.cancel()

    asyncio.run(scenario())


def namespace(key: str) -> str:
    return key.partition("/")[0]


@pytest.mark.parametrize("tenants", [1, 5])
def test_hostile_tenants_that_take_all_the_time_they_get_hold_up_no_victim(tenants: int) -> None:
    """50 jobs of each never end by themselves; a victim's look begins at once, with all of those before it in the queue."""

    async def scenario() -> None:
        began: Counter[str] = Counter()

        async def work(key: str) -> float | None:
            began[namespace(key)] += 1
            if key.startswith("hostile"):
                await asyncio.Event().wait()
            return None

        queue: WorkQueue[str] = WorkQueue(work, workers=50, observe=lambda *_: None, lane=namespace)
        task = asyncio.create_task(queue.run())
        for number in range(50 * tenants):
            queue.add(f"hostile-{number % tenants}/{number}")
        await until(lambda: sum(began.values()) >= 25)
        for number in range(20):
            queue.add(f"victim/{number}")
        await until(lambda: began["victim"] == 20)
        assert len(queue) > 0, "hostile jobs still wait"
        task.cancel()

    asyncio.run(scenario())


def test_work_that_takes_longer_than_its_deadline_is_given_up_and_comes_back() -> None:
    async def scenario() -> None:
        outcomes: list[str] = []
        tries: Counter[str] = Counter()

        async def work(key: str) -> float | None:
            tries[key] += 1
            if tries[key] == 1:
                await asyncio.Event().wait()
            return None

        queue: WorkQueue[str] = WorkQueue(work, workers=1, observe=lambda waited, took, how: outcomes.append(how), deadline_s=0.01)
        task = asyncio.create_task(queue.run())
        queue.add("slow")
        await until(lambda: tries["slow"] == 2, turns=4000)
        await until(lambda: outcomes == ["Unavailable", "done"])
        task.cancel()

    asyncio.run(scenario())


def test_a_time_out_inside_the_work_is_not_taken_for_its_deadline() -> None:
    async def scenario() -> None:
        outcomes: list[str] = []

        async def work(key: str) -> float | None:
            raise TimeoutError

        queue: WorkQueue[str] = WorkQueue(work, workers=1, observe=lambda waited, took, how: outcomes.append(how))
        task = asyncio.create_task(queue.run())
        queue.add("defect")
        await until(lambda: outcomes == ["Internal"])
        task.cancel()

    asyncio.run(scenario())


def test_health_tells_work_that_ignores_its_deadline_and_a_queue_from_which_nothing_is_taken() -> None:
    async def scenario() -> None:
        over = asyncio.Event()

        async def work(key: str) -> float | None:
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    continue
            return None

        queue: WorkQueue[str] = WorkQueue(work, workers=1, observe=lambda *_: None, deadline_s=0.01)
        queue.add("stuck")
        assert queue.problem() is None
        await until(lambda: queue.problem() is not None)
        assert "the queue makes no progress" in str(queue.problem())
        task = asyncio.create_task(queue.run())
        await until(lambda: "far beyond its deadline" in str(queue.problem()))
        over.set()
        await until(lambda: queue.problem() is None)
        task.cancel()

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.sampled_from([0.0, 0.002])), max_size=40), st.integers(1, 6))
def test_every_key_of_every_lane_is_worked_on_and_none_twice_at_once(added: list[tuple[str, int, float]], workers: int) -> None:
    """However keys are spread over lanes, times and workers: no lane is forgotten, none takes more than was free, and all comes to an end."""

    async def scenario() -> None:
        running: Counter[str] = Counter()
        done: set[str] = set()

        async def work(key: str) -> float | None:
            running[key] += 1
            assert running[key] == 1
            assert sum(running.values()) <= workers
            held = sum(count for each, count in running.items() if namespace(each) == namespace(key))
            assert held <= max(1, (workers + 1) // 2)
            await asyncio.sleep(0)
            running[key] -= 1
            done.add(key)
            return None

        queue: WorkQueue[str] = WorkQueue(work, workers=workers, observe=lambda waited, took, how: outcomes.append(how), lane=namespace)
        outcomes: list[str] = []
        task = asyncio.create_task(queue.run())
        for lane, number, after_s in added:
            queue.add(f"{lane}/{number}", after_s)
        wanted = {f"{lane}/{number}" for lane, number, _ in added}
        # A key that a worker has just taken is for a moment neither in the queue nor running.
        await until(lambda: done == wanted and len(queue) == 0 and not +running)
        assert set(outcomes) <= {"done"}
        task.cancel()

    asyncio.run(scenario())
