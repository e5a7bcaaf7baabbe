"""TestingJob: its docstring runs, and misuse is refused before anything runs, with the place in the list."""

from __future__ import annotations

import doctest
import re
from typing import Any

import pyarrow as pa
import pytest

from statefulspark import KeyedProcessFunction, MapStateDescriptor, RuntimeContext, Types
from statefulspark.errors import ClosedError, InvalidInputError
from statefulspark.testing import (
    ADVANCE,
    CHECKPOINT,
    DAMAGE_CHECKPOINT,
    DRAIN,
    FAIL_STORAGE,
    KILL_DRIVER,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_SLOT,
    PAUSE_DRIVER,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RESUME_DRIVER,
    RETRY_BATCH,
    SAVEPOINT,
    TestingJob,
)
from statefulspark.testing import job as job_module

_SCHEMA = {"user": pa.string()}
ROW = ("ada",)


class Echo(KeyedProcessFunction):
    """Remembers the user in a map state, and gives out a different row each time if it is told to."""

    random = False
    calls = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.STRING(), Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.seen.put("times", (self.seen.get("times") or 0) + 1)
        type(self).calls += 1
        yield (f"{value.user}-{type(self).calls}" if self.random else value.user,)


class Random(Echo):
    """Depends on how often it was called in this process."""

    random = True


class Clock(KeyedProcessFunction):
    """Gives out the processing time."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield (ctx.timer_service().current_processing_time(),)


@pytest.fixture
def job() -> Any:
    with TestingJob(Echo(), _SCHEMA, _SCHEMA, key="user", parallelism=1) as job:
        yield job


def test_the_example_of_the_docstring_runs() -> None:
    """As a user would copy it."""
    result = doctest.testmod(job_module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([KILL_SLOT], "items[0]: KILL_SLOT has no argument. Write KILL_SLOT(...)"),
        ([RETRY_BATCH], "items[0]: RETRY_BATCH happens within a batch"),
        ([ROW, CHECKPOINT, KILL_DRIVER_AFTER_SINK_COMMIT], "items[2]: KILL_DRIVER_AFTER_SINK_COMMIT happens within a batch"),
        ([ROW, KILL_SLOT(0, "after_lunch")], "items[1]: 'after_lunch' is no moment"),  # type: ignore[arg-type]  # misuse
        ([ROW, FAIL_STORAGE(0)], "items[1]: it cannot fail 0 writes"),
        ([ROW, DRAIN, ROW], "items[2]: a row follows DRAIN"),
        ([RESUME_DRIVER], "items[0]: no driver is paused"),
        ([PAUSE_DRIVER, PAUSE_DRIVER], "items[1]: a driver is paused already"),
        ([RESTORE_FROM_SAVEPOINT()], "items[0]: there is no savepoint"),
        ([ADVANCE(-5)], "items[0]: processing time cannot go back by 5 ms"),
        ([RESCALE(0)], "items[0]: a job cannot have 0 slots"),
        ([ROW, CHECKPOINT, (7,)], "an int for column 'user'"),
    ],
)
def test_misuse_is_refused_before_anything_runs(job: TestingJob, items: list[Any], said: str) -> None:
    """The row before the mistake is not processed."""
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        job.run(items)
    assert job.output == []


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([KILL_SLOT(1)], "there is no slot 1. The job has slots 0 to 0"),
        ([RESCALE(129)], "129 is out of range. Choose 1 to max_parallelism, 128"),
        ([DAMAGE_CHECKPOINT], "the job has no checkpoint. Put CHECKPOINT before it"),
        ([ROW, RESCALE(2), ROW, KILL_SLOT(1, "before_ack")], "KILL_SLOT did not happen"),
        ([PAUSE_DRIVER, RESUME_DRIVER], "the paused driver has missed no row"),
    ],
)
def test_an_event_that_cannot_happen_is_refused(job: TestingJob, items: list[Any], said: str) -> None:
    """A scenario never passes because its event did nothing."""
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        job.run(items)


def test_the_clock_starts_at_zero_and_stays_there_until_it_is_moved() -> None:
    """A restart from a checkpoint or savepoint of time zero does not move it to the time of day."""
    with TestingJob(Clock(), _SCHEMA, {"at": pa.int64()}, key="user", parallelism=1) as job:
        times = job.run([ROW, CHECKPOINT, KILL_DRIVER, ROW, SAVEPOINT, RESTORE_FROM_SAVEPOINT(), ROW, ADVANCE(5), ROW])
    assert times == [(0,), (0,), (0,), (5,)]


def test_a_function_whose_results_are_not_repeatable_is_found() -> None:
    """A batch that runs again must give out the same rows."""
    with (
        TestingJob(Random(), _SCHEMA, _SCHEMA, key="user", parallelism=1) as job,
        pytest.raises(InvalidInputError, match="it emitted different rows when batch 0 ran again"),
    ):
        job.run([ROW, RETRY_BATCH])


def test_state_of_a_map_is_a_dict_by_map_key(job: TestingJob) -> None:
    """And a state nobody has used is named in the error, with those there are."""
    job.run([ROW, ROW])
    assert job.state("seen") == {"ada": {"times": 2}}
    assert job.event_time_timers() == job.processing_time_timers() == []
    with pytest.raises(InvalidInputError, match=r"no state 'sen'.*seen"):
        job.state("sen")


def test_a_closed_job_is_refused() -> None:
    """Its temporary folder is gone."""
    with TestingJob(Echo(), _SCHEMA, _SCHEMA, key="user") as job:
        pass
    with pytest.raises(ClosedError, match="the job is closed"):
        job.run([ROW])
