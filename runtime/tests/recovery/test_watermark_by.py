"""Rows of a slow partition are not late if the watermark is the minimum over partitions: windows on the real runtime, through failures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from statefulspark import KeyedCoProcessFunction, Time, TumblingEventTimeWindows
from statefulspark.errors import InvalidInputError
from statefulspark.testing import (
    ADVANCE,
    BATCH,
    CHECKPOINT,
    DAMAGE_CHECKPOINT,
    DRAIN,
    KILL_DRIVER,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_SLOT,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RETRY_BATCH,
    SAVEPOINT,
    SECOND,
    SecondInput,
    TestingJob,
    WindowHarness,
)

ROWS = "user STRING, partition INT, at BIGINT"
COUNTS = "user STRING, partition INT, at BIGINT"
SECOND_MS = 1_000


def latest() -> Any:
    """The function of a step with windows of 10 s, which emit their last row."""
    windows = WindowHarness(TumblingEventTimeWindows.of(Time.seconds(10)), ROWS, key="user")
    return windows.reduce(lambda _, b: b, uid="latest", event_time="at")._step.function


def job(*, watermark_by: str | tuple[str, ...] = "partition", **arguments: Any) -> TestingJob:
    return TestingJob(
        latest(), ROWS, COUNTS, key="user", event_time="at", watermark_ms=5 * SECOND_MS, watermark_by=watermark_by, **arguments
    )


def rows(batches: int = 12) -> list[Any]:
    """Each batch has a row of 10 s later from partition 0, and one of partition 1, which is a minute behind. Each row is alone in its window."""
    found: list[Any] = []
    for number in range(batches):
        for partition, at in ((0, 60_000 + 10_000 * number), (1, 10_000 * number)):
            found.append((f"user-{partition}", partition, at))
        found.append(BATCH)
    return found


def only_rows(items: Iterable[Any]) -> list[Any]:
    return sorted(each for each in items if isinstance(each, tuple))


def late(run: TestingJob) -> int:
    return sum(total.late_rows_dropped for total in run._runner.driver.coordinator.view().totals.values())


def test_a_partition_a_minute_behind_loses_every_row_by_default_and_none_with_watermark_by() -> None:
    """Its first batch comes before there is a watermark."""
    with job(watermark_by=()) as plain:
        plain.run([*rows(), DRAIN])
        assert late(plain) == 11
        assert [row for row in plain.output if row[1] == 1] == [("user-1", 1, 0)]
    with job() as by_partition:
        by_partition.run([*rows(), DRAIN])
        assert late(by_partition) == 0
        assert sorted(by_partition.output) == only_rows(rows())


@pytest.mark.parametrize(
    "event",
    [
        KILL_DRIVER,
        KILL_DRIVER_BEFORE_SINK_COMMIT,
        KILL_SLOT(0),
        RETRY_BATCH,
        RESCALE(3),
        [CHECKPOINT, KILL_DRIVER],
        [CHECKPOINT, BATCH, CHECKPOINT, DAMAGE_CHECKPOINT, KILL_DRIVER],
        [SAVEPOINT, RESTORE_FROM_SAVEPOINT()],
    ],
    ids=["driver", "driver-before-commit", "slot", "retry", "rescale", "restored", "damaged", "savepoint"],
)
def test_failures_change_nothing(event: Any) -> None:
    """After the seventh batch, when a watermark that has forgotten the slow partition would make its rows late."""
    items = rows()
    place = 3 * 7 - 1
    events = event if isinstance(event, list) else [event]
    with job() as run:
        run.run([*items[:place], *events, *items[place:], DRAIN])
        assert (late(run), sorted(run.output)) == (0, only_rows(items))


def test_a_silent_partition_holds_the_watermark_until_it_is_idle() -> None:
    items: list[Any] = [("a", 0, 1), ("b", 1, 2), BATCH]
    for number in range(1, 9):
        items += [("a", 0, 10_000 * number), BATCH, ADVANCE(10 * SECOND_MS)]
    with job() as held, job(idle_after_ms=30 * SECOND_MS) as goes_on:
        held.run(items)
        assert held.output == []
        goes_on.run(items)
        assert ("b", 1, 2) in goes_on.output
        assert ("a", 0, 30_000) in goes_on.output
        before = len(goes_on.output)
        goes_on.run([("b", 1, 75_000), BATCH, ("a", 0, 200_000), BATCH])
        assert ("a", 0, 80_000) not in goes_on.output[before:], "the partition counts again, and is at 75 s less the delay"


def test_too_many_values_end_the_job_with_the_uid_and_the_remedy() -> None:
    """Over slots and batches; each of them alone has few enough."""
    first, second = ([(f"user-{number}", number, 0) for number in numbers] for numbers in (range(700), range(700, 1_100)))
    with job(uid="by-user") as run:
        run.run([*first, BATCH])
        with pytest.raises(
            InvalidInputError, match=r"uid 'by-user': watermark_by: column 'partition' has had more than 1,024 values\. Give"
        ):
            run.run(second)


class Both(KeyedCoProcessFunction):
    """Emits the watermark with each row."""

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield value.user, ctx.timer_service().current_watermark()

    process_element2 = process_element1


def test_two_inputs_each_by_their_own_columns() -> None:
    """The first by partition, the second by topic and site, of which it has one that is behind."""
    second = SecondInput("user STRING, topic STRING, site STRING, at BIGINT", "user", "at", 10, watermark_by=["topic", "site"])
    with TestingJob(
        Both(), ROWS, "user STRING, mark BIGINT", key="user", event_time="at", watermark_by="partition", second=second, parallelism=1
    ) as run:
        run.run([("a", 0, 500), ("a", 1, 300), SECOND(("a", "t", "x", 400)), SECOND(("a", "t", None, 250)), BATCH])
        assert run.run([("a", 0, 900), BATCH]) == [("a", 240)]
        assert run.run([SECOND(("a", "t", None, 800)), BATCH, ("a", 0, 900), BATCH]) == [("a", 240), ("a", 300)]
