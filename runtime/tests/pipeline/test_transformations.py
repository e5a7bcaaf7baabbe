"""Queries that transformations and key selectors make of a stream, as Spark analyzes them; no query is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812  as above
from runtime.tests.small_session import NOWHERE, small_session
from structlog.testing import capture_logs

from statefulspark import KeySelector, OutputTag, Time, TumblingEventTimeWindows, Types
from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.job import Job
from statefulspark.pipeline.tagged_streams import TaggedStream

COLUMNS = "user string, item string, price double, at timestamp, tags array<string>"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session of this module's own."""
    with small_session() as session:
        yield session


@pytest.fixture
def job(spark: SparkSession) -> Job:
    return Job(spark=spark, name="job", args=[], parallelism=2, max_parallelism=8, endpoint=NOWHERE, hashings={})


@pytest.fixture
def df(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return spark.readStream.schema(COLUMNS).json(str(tmp_path))


def test_results_have_the_declared_or_the_streams_columns(job: Job, df: DataFrame) -> None:
    """Map and flat_map take any declaration; the others pass the stream's columns on. Every one is a step of its uid."""
    keyed = job.key_by(df, "user")
    assert keyed.map(lambda row: row.user, Types.STRING(), uid="map").columns == ["f0"]
    assert keyed.flat_map(lambda row: row.tags, "tag string", uid="flat_map").dtypes == [("tag", "string")]
    with pytest.raises(InvalidInputError, match=r"^output_type: 'bigint' is not a list of columns"):
        keyed.map(lambda row: row.user, "bigint", uid="refused")
    results = [
        keyed.filter(lambda row: row.price, uid="filter"),
        keyed.reduce(lambda a, b: a, uid="reduce"),
        keyed.sum("price", uid="sum"),
        keyed.min("at", uid="min"),
        keyed.max(0, uid="max"),
        keyed.min_by(2, uid="min_by"),
        keyed.max_by("item", uid="max_by", event_time="at"),
    ]
    assert all(result.dtypes == df.dtypes and result.isStreaming for result in results)
    assert [step.uid for step in job.steps] == ["map", "flat_map", "filter", "reduce", "sum", "min", "max", "min_by", "max_by"]
    assert [step.event_time for step in job.steps][-2:] == [None, "at"]
    assert all(step.key_columns == ("user",) for step in job.steps)


def test_event_time_without_a_watermark_is_said_where_there_is_one_to_set(job: Job, df: DataFrame) -> None:
    """Windows wait for the watermark; the rows of a rolling aggregation are only ordered by event time."""
    keyed = job.key_by(df, "user")
    with capture_logs() as logs:
        keyed.max_by("item", uid="ordered", event_time="at")
        keyed.window(TumblingEventTimeWindows.of(Time.hours(1))).reduce(
            lambda first, _: first, uid="silent", event_time="at", watermark="1 hour"
        )
        assert logs == []
        keyed.window(TumblingEventTimeWindows.of(Time.hours(1))).reduce(lambda first, _: first, uid="windows", event_time="at")
    assert [each["event"].split(":")[0] for each in logs] == ["uid 'windows' has event time and no watermark"]


def test_a_watermark_of_the_stream_is_not_one_of_the_result(job: Job, df: DataFrame) -> None:
    """Spark would take the column for one with a watermark, which the rows that a step emits do not keep to."""
    marked = df.withWatermark("at", "1 hour")
    assert marked.schema["at"].metadata
    assert not job.key_by(marked, "user").filter(bool, uid="filter").schema["at"].metadata


class ByItemAndDay(KeySelector):
    """Keys by a column and an expression."""

    def get_key(self, value: Any) -> Any:
        return value["item"], F.to_date(value.at).alias("day")


@pytest.mark.parametrize(
    ("selectors", "keys", "added"),
    [
        ((lambda row: row.user,), ("user",), []),
        ((lambda row: (row["user"], row[1]),), ("user", "item"), []),
        (("user", lambda row: row.item), ("user", "item"), []),
        ((lambda row: F.lower(row.user),), ("lower(user)",), ["lower(user)"]),
        ((ByItemAndDay(),), ("item", "day"), ["day"]),
        ((lambda row: row.price.cast("long") % 10,), ("(CAST(price AS BIGINT) % 10)",), ["(CAST(price AS BIGINT) % 10)"]),
    ],
)
def test_spark_evaluates_key_selectors(job: Job, df: DataFrame, selectors: Any, keys: tuple[str, ...], added: list[str]) -> None:
    """A column is the key itself; an expression is added to the rows that functions see, but not to rows that are passed on."""
    keyed = job.key_by(df, *selectors)
    assert keyed.filter(bool, uid="filter").columns == df.columns
    assert keyed.max_by("price", uid="max_by").columns == df.columns
    keyed.map(lambda row: row.user, "user string", uid="map")
    assert [step.key_columns for step in job.steps] == [keys] * 3
    assert job.steps[2].input_schema.names == [*df.columns, *added]


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        (lambda row: row.user.lower(), "Spark cannot evaluate the key selector: TypeError"),
        (lambda row: row.user if row.price > 1 else row.item, "Spark cannot evaluate the key selector: .*bool"),
        (lambda row: row.missing, "Spark cannot evaluate the key selector: AttributeError: missing"),
        (lambda row: row["missing"], "missing: not a column of this row; the columns are user, item"),
        (lambda row: "user", "the key selector returned a str, not a column"),
        (lambda row: None, "returned a NoneType"),
        (lambda row: (), "no key column"),
        (ByItemAndDay, "expected columns, a KeySelector or a function, got the class ByItemAndDay"),
        (5, "expected columns, a KeySelector or a function, got int"),
        (lambda row: F.rand(), "changes from one evaluation to the next"),
        (lambda row: F.lower(row.user).alias("item"), "computes a column 'item', which already exists"),
        (lambda row: row.tags, "cannot be a key"),
        (lambda row: row.price + 1, "cannot be a key"),
    ],
)
def test_key_selectors_that_spark_cannot_evaluate_are_refused(job: Job, df: DataFrame, selector: Callable[[Any], Any], says: str) -> None:
    """The text begins with key_by and says what to do."""
    with pytest.raises(InvalidInputError, match=f"^key_by: .*{says}"):
        job.key_by(df, selector)


def test_a_window_reduce_with_a_late_tag_has_the_columns_of_the_stream(job: Job, df: DataFrame) -> None:
    """Computed key columns belong to neither output, and a row of the side output has no main row."""
    late = OutputTag("late", COLUMNS)
    windows = job.key_by(df, lambda row: F.upper(row.user)).window(TumblingEventTimeWindows.of(Time.minutes(1)))
    stream = windows.side_output_late_data(late).reduce(lambda a, b: a, uid="windows", event_time="at")
    assert isinstance(stream, TaggedStream)
    assert stream.outputs == ("main", "late")
    for name in stream.outputs:
        field = stream.df.schema[name]
        assert field.nullable
        assert [(each.name, each.dataType.simpleString()) for each in cast("T.StructType", field.dataType)] == df.dtypes
    assert stream.df.isStreaming
    job.outputs(stream, main=lambda *_: None, late=None)
    job.check_outputs()
