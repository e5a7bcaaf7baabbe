"""What the runtime guarantees for side outputs when something fails: each row is in the output of its tag, once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from statefulspark import KeyedProcessFunction, OutputTag, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.errors import InvalidInputError
from statefulspark.testing import (
    BATCH,
    CHECKPOINT,
    DRAIN,
    FAIL_STORAGE,
    KILL_DRIVER,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_DRIVER_BETWEEN_OUTPUTS,
    KILL_SLOT,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RETRY_BATCH,
    SAVEPOINT,
    TestingJob,
)

EVEN = OutputTag("even", "user STRING, number BIGINT")
QUIET = OutputTag("quiet", "user STRING, number BIGINT, at BIGINT")
_INPUT, _OUTPUT = "user STRING, at BIGINT", "user STRING, number BIGINT"


class Split(KeyedProcessFunction):
    """Numbers the rows of a user; even numbers go to a side output, and a timer tells how many there were."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        ctx.timer_service().register_event_time_timer(value.at + 100)
        row = ctx.get_current_key(), number
        yield row if number % 2 else (EVEN, row)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield QUIET, {"user": ctx.get_current_key(), "number": self.number.value(), "at": timestamp}


def splitting(folder: Path, *tags: OutputTag) -> TestingJob:
    return TestingJob(Split(), _INPUT, _OUTPUT, key="user", event_time="at", side_outputs=tags or (EVEN, QUIET), folder=folder)


ADA = ("ada", 10)


@pytest.mark.parametrize(
    "event",
    [
        BATCH,
        KILL_DRIVER_BEFORE_SINK_COMMIT,
        KILL_DRIVER_BETWEEN_OUTPUTS,
        KILL_DRIVER_AFTER_SINK_COMMIT,
        KILL_DRIVER,
        RETRY_BATCH,
        KILL_SLOT(0),
        RESCALE(3),
        FAIL_STORAGE(2, lost="answer"),
        CHECKPOINT,
    ],
    ids=str,
)
def test_each_row_is_in_its_output_once_whatever_happens(tmp_path: Path, event: Any) -> None:
    """Three rows, the event within or after their batch, and three more."""
    with splitting(tmp_path) as job:
        job.run([ADA, ADA, ADA, event, ADA, ADA, ADA, DRAIN])
        assert job.output == [("ada", 1), ("ada", 3), ("ada", 5)]
        assert job.get_side_output(EVEN) == [("ada", 2), ("ada", 4), ("ada", 6)]
        assert job.get_side_output(QUIET) == [("ada", 6, 110)]


@pytest.mark.parametrize("when", ["before_changelog", "before_ack", "after_ack"])
def test_a_slot_that_dies_in_a_batch_sends_its_rows_to_the_same_outputs_again(tmp_path: Path, when: Any) -> None:
    with splitting(tmp_path) as job:
        job.run([ADA, ADA, KILL_SLOT(job.slot_of("ada"), when), ADA, ADA])
        assert (job.output, job.get_side_output(EVEN)) == ([("ada", 1), ("ada", 3)], [("ada", 2), ("ada", 4)])


def test_rows_after_a_savepoint_go_to_every_output_again(tmp_path: Path) -> None:
    """The job goes back in time under new batch numbers; what side outputs have stays there, as in the main output."""
    with splitting(tmp_path) as job:
        job.run([ADA, SAVEPOINT, ADA, RESTORE_FROM_SAVEPOINT(3)])
        assert (job.output, job.get_side_output(EVEN)) == ([("ada", 1)], [("ada", 2), ("ada", 2)])


def test_random_histories_end_with_the_outputs_of_an_undisturbed_job(tmp_path: Path) -> None:
    """Twelve batches of six users with a random event each, against a count by hand; kills between outputs are the most likely."""
    chance = random.Random(12)
    events = [KILL_DRIVER_BETWEEN_OUTPUTS] * 4 + [KILL_DRIVER_BEFORE_SINK_COMMIT, KILL_DRIVER_AFTER_SINK_COMMIT, RETRY_BATCH, CHECKPOINT]
    rows = [(f"user-{chance.randrange(6)}", number) for number in range(60)]
    history: list[Any] = []
    for batch in range(12):
        history += rows[5 * batch : 5 * batch + 5]
        history += [chance.choice(events)]
        if batch % 4 == 3:
            history += [RESCALE(chance.randint(1, 4))]
    numbers: dict[str, int] = {}
    expected: dict[bool, list[tuple[str, int]]] = {False: [], True: []}
    for user, _ in rows:
        numbers[user] = numbers.get(user, 0) + 1
        expected[numbers[user] % 2 == 0].append((user, numbers[user]))
    with splitting(tmp_path) as job:
        job.run(history)
        assert sorted(job.output) == sorted(expected[False])
        assert sorted(job.get_side_output(EVEN)) == sorted(expected[True])


def test_what_a_job_without_the_side_output_cannot_do_is_refused(tmp_path: Path) -> None:
    with splitting(tmp_path, EVEN) as job, pytest.raises(InvalidInputError, match="the job has no side output 'quiet'"):
        job.get_side_output(QUIET)
    with (
        TestingJob(Split(), _INPUT, _OUTPUT, key="user", event_time="at", folder=tmp_path / "plain") as plain,
        pytest.raises(InvalidInputError, match="KILL_DRIVER_BETWEEN_OUTPUTS: the job has no side output"),
    ):
        plain.run([ADA, KILL_DRIVER_BETWEEN_OUTPUTS])
