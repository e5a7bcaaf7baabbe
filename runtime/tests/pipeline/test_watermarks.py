"""The steps whose watermarks a step waits for, as they are found in Spark's plans; no query is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from runtime.tests.small_session import NOWHERE, small_session
from structlog.testing import capture_logs

from statefulspark import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    Time,
    TumblingEventTimeWindows,
    Types,
)
from statefulspark.errors import InvalidInputError
from statefulspark.pipeline import step_arguments
from statefulspark.pipeline.job import Job
from statefulspark.process.rows.step_spec import idle_afters_ms, watermark_columns

ROWS = "k string, at timestamp, n bigint"
RULES = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session of this module's own."""
    with small_session() as session:
        yield session


@pytest.fixture
def job(spark: SparkSession) -> Job:
    step_arguments._log_without_watermark.cache_clear()
    return Job(spark=spark, name="job", args=[], parallelism=2, max_parallelism=8, endpoint=NOWHERE, hashings={})


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return spark.readStream.schema(ROWS).json(str(tmp_path))


class One(KeyedProcessFunction):
    """Takes rows of one input."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None: ...


class Both(KeyedCoProcessFunction):
    """Takes rows of two inputs."""

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None: ...

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None: ...


class Ruled(KeyedBroadcastProcessFunction):
    """Takes rows, and rows of a broadcast stream."""

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None: ...

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None: ...


def one(job: Job, df: DataFrame, uid: str, *, event_time: str | None = "at", watermark: str | int | None = None) -> DataFrame:
    return job.key_by(df, "k").process(One(), ROWS, uid=uid, event_time=event_time, watermark=watermark)


def found(job: Job) -> dict[str, tuple[tuple[int | None, ...], tuple[str, ...]]]:
    """Delays of each step and the steps before it."""
    return {step.uid: (step.delays_ms, step.after) for step in job.steps}


def test_steps_are_found_through_whatever_spark_does_between(job: Job, source: DataFrame, spark: SparkSession) -> None:
    """Without a watermark of its own a step has that of the steps before; only the first step is told that it has none."""
    with capture_logs() as logs:
        first = one(job, source, "first")
    assert [each["event"].split(":")[0] for each in logs] == ["uid 'first' has event time and no watermark"]
    static = spark.createDataFrame([("a", 1)], "k string, m bigint")
    between = first.where("n > 0").withColumn("n", F.lit(1).cast("bigint")).join(static, "k").union(first.join(static, "k"))
    between.createOrReplaceTempView("between")
    with capture_logs() as logs:
        second = one(job, spark.sql("select k, at, n from between"), "second")
        windows = job.key_by(second, "k").window(TumblingEventTimeWindows.of(Time.minutes(1)))
        windows.reduce(lambda a, _: a, uid="third", event_time="at", watermark="1 minute")
        one(job, second, "silent", event_time=None)
    assert logs == []
    assert found(job) == {
        "first": ((0,), ()),
        "second": ((None,), ("first",)),
        "third": ((60_000,), ("first", "second")),
        "silent": ((None,), ()),
    }


def test_watermarks_pass_through_steps_without_one(job: Job, source: DataFrame) -> None:
    """Steps without event time, and those that are only ordered by it."""
    first = one(job, source, "first", watermark=5)
    mapped = job.key_by(first, "k").map(lambda row: row, ROWS, uid="mapped", event_time="at")
    one(job, one(job, mapped, "no time", event_time=None), "second")
    one(job, job.key_by(source, "k").map(lambda row: row, ROWS, uid="of source", event_time="at"), "after source", watermark=7)
    assert found(job) == {
        "first": ((5,), ()),
        "mapped": ((0,), ("first",)),
        "no time": ((None,), ()),
        "second": ((None,), ("first",)),
        "of source": ((0,), ()),
        "after source": ((7,), ()),
    }


def test_rows_that_come_past_the_steps_have_no_watermark_of_theirs(job: Job, source: DataFrame) -> None:
    """The step waits for the steps nevertheless, and is told that a watermark is missing."""
    first = one(job, source, "first", watermark=5)
    with capture_logs() as logs:
        one(job, first.union(source), "mixed")
        one(job, job.key_by(first.union(source), "k").map(lambda row: row, ROWS, uid="mapped"), "after mapped")
    assert [each["event"].split(":")[0] for each in logs] == [
        "uid 'mixed' has event time and no watermark",
        "uid 'after mapped' has event time and no watermark",
    ]
    assert {uid: step for uid, step in found(job).items() if uid in {"mixed", "after mapped"}} == {
        "mixed": ((0,), ("first",)),
        "after mapped": ((0,), ("first",)),
    }


def test_steps_of_every_kind_take_the_time_after_which_an_input_is_idle(job: Job, source: DataFrame) -> None:
    first = job.key_by(source, "k").process(One(), ROWS, uid="first", event_time="at", watermark=5, idle_after="1 minute")
    both = job.key_by(first, "k").connect(job.key_by(source, "k"))
    both.process(Both(), ROWS, uid="both", event_time2="at", watermark2=5, idle_after=7)
    windows = job.key_by(source, "k").window(TumblingEventTimeWindows.of(Time.minutes(1)))
    windows.reduce(lambda a, _: a, uid="window", event_time="at", watermark=5, idle_after="2 hours")
    one(job, source, "never", watermark=5)
    assert idle_afters_ms(job.steps) == {"first": 60_000, "both": 7, "window": 7_200_000}
    with pytest.raises(InvalidInputError, match="idle_after: needs event time"):
        job.key_by(source, "k").process(One(), ROWS, uid="untimed", idle_after="1 minute")


def test_steps_of_every_kind_take_columns_by_whose_values_event_times_are_known(job: Job, source: DataFrame) -> None:
    first = job.key_by(source, "k").process(One(), ROWS, uid="first", event_time="at", watermark=5, watermark_by="n")
    both = job.key_by(first, "k").connect(job.key_by(source, "k"))
    both.process(Both(), ROWS, uid="both", event_time1="at", event_time2="at", watermark2=5, watermark_by2=["n", "k"])
    windows = job.key_by(source, "k").window(TumblingEventTimeWindows.of(Time.minutes(1)))
    windows.reduce(lambda a, _: a, uid="window", event_time="at", watermark=5, watermark_by="k")
    assert watermark_columns(job.steps) == {"first": (("n",),), "both": ((), ("n", "k")), "window": (("k",),)}
    for event_time, said in (
        (None, "watermark_by: needs event time"),
        ("at", "watermark_by: the input has the watermark of the steps before it"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            job.key_by(first, "k").process(One(), ROWS, uid="wrong", event_time=event_time, watermark_by="n")


def test_each_input_has_the_steps_before_it(job: Job, source: DataFrame) -> None:
    """An input without event time does not count: its rows cannot be late."""
    first, other = one(job, source, "first", watermark=5), one(job, source, "other", watermark=5)
    both = job.key_by(first, "k").connect(job.key_by(source, "k"))
    joined = both.process(Both(), ROWS, uid="both", event_time1="at", event_time2="at", watermark2="1 minute")
    late = OutputTag("late", ROWS)
    ruled = job.key_by(joined, "k").connect(job.broadcast(other, RULES))
    ruled.process(Ruled(), ROWS, uid="ruled", event_time="at", side_outputs=[late])
    twice = job.key_by(source, "k").connect(job.broadcast(other, RULES))
    timed = twice.process(Ruled(), ROWS, uid="timed", event_time="at", watermark=1, broadcast_event_time="at")
    one(job, timed, "last")
    assert {uid: step for uid, step in found(job).items() if uid not in {"first", "other"}} == {
        "both": ((None, 60_000), ("first",)),
        "ruled": ((None, None), ("both", "first")),
        "timed": ((1, None), ("other",)),
        "last": ((None,), ("other", "timed")),
    }
