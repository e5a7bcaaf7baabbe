"""Queries whose state Spark would keep on the driver's disk are refused before they start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark.errors import InvalidInputError
from statefulspark.job.java import find_java_home
from statefulspark.job.plans import refuse_spark_state

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session of this module's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", find_java_home() or "")
        session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        yield session
        session.stop()


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda rows: rows.groupBy("value").count(), "groupBy"),
        (lambda rows: rows.dropDuplicates(["value"]), "dropDuplicates"),
        (lambda rows: rows.limit(3), "limit"),
        (lambda rows: rows.alias("a").join(rows.alias("b"), F.expr("a.value = b.value")), "join of two streams"),
    ],
)
def test_sparks_own_stateful_steps_are_refused_by_name(spark: SparkSession, build: Callable[[DataFrame], DataFrame], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        refuse_spark_state(build(spark.readStream.format("rate").load()))


def test_steps_without_state_on_the_stream_pass(spark: SparkSession) -> None:
    rows, table = spark.readStream.format("rate").load(), spark.range(10)
    refuse_spark_state(rows.join(table.groupBy("id").count(), rows.value == F.col("id")).where("value > 1").select("value"))
