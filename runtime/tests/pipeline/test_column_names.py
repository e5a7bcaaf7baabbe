"""Columns whose names Spark reads as syntax pass through a keyed step as they are; and types that Arrow does not have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812  Spark's own convention
from runtime.tests.depth import examples
from runtime.tests.small_session import NOWHERE, small_session

from statefulspark import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    Types,
)
from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.job import Job
from statefulspark.pipeline.output_types import output_struct

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session of this module's own."""
    with small_session() as session:
        yield session


class One(KeyedProcessFunction):
    """Takes rows of one input."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None: ...


class Both(KeyedCoProcessFunction):
    """Takes rows of both inputs."""

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None: ...

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None: ...


class Rules(KeyedBroadcastProcessFunction):
    """Takes rows of a keyed stream and of a broadcast stream."""

    def process_element(self, value: Any, ctx: Any) -> None: ...

    def process_broadcast_element(self, value: Any, ctx: Any) -> None: ...


NAME = st.text(st.sampled_from("aAé.`'\"\\$*()[]{} ,;:%_1"), min_size=1, max_size=6)
NAMES = st.lists(NAME, min_size=3, max_size=5, unique_by=str.lower)


@settings(max_examples=examples(4, 60))
@given(names=NAMES, others=NAMES)
@example(names=["user.id", "a`b", "at"], others=["a.b", "*", "a.c"])
def test_columns_of_any_names_can_be_keyed_connected_and_broadcast(spark: SparkSession, names: list[str], others: list[str]) -> None:
    """As keys, as event time, in both inputs, in outputs and side outputs; Spark analyzes the whole plan, and no query is started."""
    assume((names[0] + ".").lower() not in map(str.lower, names))
    folder = str(Path(__file__).parent)
    job = Job(spark=spark, name="job", args=[], parallelism=2, max_parallelism=8, endpoint=NOWHERE, hashings={})

    def stream(columns: list[str]) -> DataFrame:
        plain = spark.readStream.schema(", ".join(f"c{place} string" for place in range(len(columns)))).json(folder)
        last = F.current_timestamp()
        return plain.withColumn(f"c{len(columns) - 1}", last).toDF(*columns)

    schema = T.StructType([T.StructField(name, T.StringType()) for name in names])
    tag = OutputTag(names[0], T.StructType([T.StructField(name, T.StringType()) for name in others]))
    first, second = stream(names), stream(others)
    one = job.key_by(first, names[0]).process(One(), schema, uid="one", event_time=names[-1], watermark="1 s")
    two = job.key_by(first, names[0], names[1]).connect(job.key_by(second, others[0], others[1]))
    both = two.process(Both(), schema, uid="both", event_time2=others[-1], watermark2="1 s", side_outputs=[tag])
    rules = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
    spread = job.key_by(first, lambda row: F.lower(row[names[0]]).alias(names[0] + ".")).connect(job.broadcast(second, rules))
    result = spread.process(Rules(), schema, uid="rules")
    job.outputs(both, main=lambda *_: None, **{names[0]: None})
    assert one.columns == result.columns == names
    assert [step.input_schema.names for step in job.steps] == [names, names, [*names, names[0] + "."]]
    for df in (one, both.df, result):
        df._jdf.queryExecution().analyzed()


def test_char_and_varchar_are_strings_in_output() -> None:
    """At every depth, as in Spark's own rows: only tables know their lengths."""
    found = output_struct("c CHAR(5) NOT NULL, a ARRAY<VARCHAR(3)>, m MAP<CHAR(1), STRUCT<v: VARCHAR(2)>>", "output_type")
    assert found == T.StructType.fromDDL("c STRING NOT NULL, a ARRAY<STRING>, m MAP<STRING, STRUCT<v: STRING>>")
    assert output_struct(T.StructType([T.StructField("v", T.VarcharType(3))]), "output_type") == T.StructType.fromDDL("v STRING")


def test_an_array_without_a_type_of_elements_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Arrow has no such type; the error names column and remedy."""
    job = Job(spark=spark, name="job", args=[], parallelism=2, max_parallelism=8, endpoint=NOWHERE, hashings={})
    df = spark.readStream.schema("user string").json(str(tmp_path)).withColumn("tags", F.array())
    with pytest.raises(InvalidInputError, match=r"^key_by: column 'tags' of type array<void> cannot be sent to Python\. .*array\(\)\.cast"):
        job.key_by(df, "user").process(One(), "user string", uid="one")
