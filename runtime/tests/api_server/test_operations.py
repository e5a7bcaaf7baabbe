"""The memory of operations: bounded, and exact about repetitions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from statefulspark.api_server.operations import Operation, Operations, OperationState
from statefulspark.errors import ConflictError, UnavailableError


def ended(operation: Operation) -> Operation:
    operation.done.exception(timeout=20)
    return operation


def held(release: threading.Event) -> Callable[[], None]:
    def work() -> None:
        release.wait(20)

    return work


def test_the_oldest_ended_ones_are_forgotten_with_their_keys() -> None:
    """A driver that runs for months does not grow; a running one is never forgotten."""
    release = threading.Event()
    operations = Operations(lambda: 0, finished_max=3)
    running = operations.submit("rescale", "r", held(release), key="running")
    for number in range(10):
        ended(operations.submit("checkpoint", "c", lambda: None, key=f"key-{number}"))
    kept = [operation.id for operation in operations.all()]
    assert running.id in kept
    assert len(kept) <= 1 + 3 + 1
    assert operations.submit("rescale", "r", lambda: None, key="running") is running
    again = operations.submit("checkpoint", "other", lambda: None, key="key-0")
    assert again.request == "other"
    release.set()
    assert ended(running).state is OperationState.SUCCEEDED


def test_bounds_and_conflicts() -> None:
    """More than may run at once are put off; the same key for another request is a conflict."""
    release = threading.Event()
    operations = Operations(lambda: 0, running_max=2)
    first = operations.submit("savepoint", "a", held(release), key="k")
    operations.submit("savepoint", "b", held(release))
    with pytest.raises(UnavailableError, match="2 operations"):
        operations.submit("savepoint", "c", lambda: None)
    with pytest.raises(ConflictError, match=first.id):
        operations.submit("savepoint", "c", lambda: None, key="k")
    release.set()
    ended(first)


def test_a_waiter_that_gives_up_does_not_cancel_the_operation() -> None:
    """Asyncio cancels what a cancelled task waits for; the operation must still be able to tell its end."""
    release = threading.Event()
    operation = Operations(lambda: 0).submit("stop", "", held(release))
    assert not operation.done.cancel()
    release.set()
    assert ended(operation).state is OperationState.SUCCEEDED


def test_times_come_from_the_clock() -> None:
    """Start and end are the clock's; the end is set before anybody who waits goes on."""
    ticks = iter([100, 250, 300, 420])
    operations = Operations(lambda: next(ticks))
    done = ended(operations.submit("checkpoint", "", lambda: None))
    assert (done.started_ms, done.finished_ms) == (100, 250)

    def fail() -> None:
        raise ConflictError("no")

    failed = ended(operations.submit("checkpoint", "", fail))
    assert (failed.started_ms, failed.finished_ms, failed.state) == (300, 420, OperationState.FAILED)
