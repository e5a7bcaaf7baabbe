"""The step and the columns that ``KeyedStream.aggregate`` makes, as far as no Spark is needed to tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from statefulspark import count, last, max_, max_by, sum_
from statefulspark.errors import InvalidInputError
from statefulspark.pipeline import keyed_streams
from statefulspark.pipeline.watermarks import Upstream
from statefulspark.process.batches.running_aggregates import RunningAggregates
from statefulspark.process.rows.step_spec import StepSpec

SCHEMA = T.StructType(
    [
        T.StructField("user", T.StringType(), nullable=False),
        T.StructField("n", T.ShortType()),
        T.StructField("price", T.DecimalType(12, 3)),
        T.StructField("wide", T.DecimalType(38, 6)),
        T.StructField("rate", T.FloatType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("tags", T.ArrayType(T.StringType())),
    ]
)


def aggregated(**arguments: Any) -> tuple[StepSpec, T.StructType]:
    """The step, and the columns that Spark is told."""
    made: list[Any] = []
    df = SimpleNamespace(schema=SCHEMA, columns=SCHEMA.names, isStreaming=True)
    job = SimpleNamespace(time_zone="UTC", max_parallelism=8, upstream=lambda _: Upstream())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_streams, "add_step", lambda _job, step, _inputs, schema, _outputs: made.extend([step, schema]))
        stream: Any = keyed_streams.KeyedStream(job, df, ("user",))  # type: ignore[arg-type]  # stand-ins, which need no Java
        stream.aggregate(uid="totals", **arguments)
    return made[0], made[1]


def test_columns_have_the_types_of_sparks_functions() -> None:
    """The key first, then the aggregates by name; Spark and the slots agree about them."""
    step, schema = aggregated(
        event_time="at",
        rows=count(),
        known=count("tags"),
        numbers=sum_("n"),
        spent=sum_("price"),
        widest=sum_("wide"),
        rates=sum_("rate"),
        latest=max_("at"),
        tags=last("tags"),
        top=max_by("n", "price"),
    )
    assert [(field.name, field.dataType, field.nullable) for field in schema.fields] == [
        ("user", T.StringType(), False),
        ("rows", T.LongType(), False),
        ("known", T.LongType(), False),
        ("numbers", T.LongType(), True),
        ("spent", T.DecimalType(22, 3), True),
        ("widest", T.DecimalType(38, 6), True),
        ("rates", T.DoubleType(), True),
        ("latest", T.TimestampType(), True),
        ("tags", T.ArrayType(T.StringType()), True),
        ("top", T.ShortType(), True),
    ]
    assert isinstance(step.function, RunningAggregates)
    assert step.output_schema.equals(step.function.output_schema)
    assert (step.uid, step.event_time, step.watermark_delay_ms) == ("totals", "at", 0)


def test_an_aggregate_that_does_not_fit_is_refused_when_the_step_is_built() -> None:
    """By the output column."""
    with pytest.raises(InvalidInputError, match=r"^total: column 'user' of type string has no sum"):
        aggregated(total=sum_("user"))
    with pytest.raises(InvalidInputError, match=r"^aggregate: there is no aggregate"):
        aggregated()
