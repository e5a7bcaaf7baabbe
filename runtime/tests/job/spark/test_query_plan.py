"""Which of Spark's own stateful steps a query has, and on which clusters their state can be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.java import find_java_home
from statefulspark.job.spark.query_plan import check_spark_state, spark_state_steps, stateful_steps


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session of this module's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", find_java_home() or "")
        session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        yield session
        session.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda rows: rows.groupBy("value").count(), ("groupBy(...).agg(...)",)),
        (lambda rows: rows.dropDuplicates(["value"]).limit(3), ("limit", "dropDuplicates")),
        (lambda rows: rows.alias("a").join(rows.alias("b"), F.expr("a.value = b.value")), ("join of two streams",)),
        (lambda rows: rows.distinct().groupBy("value").count(), ("groupBy(...).agg(...)", "dropDuplicates")),
    ],
)
def test_sparks_own_stateful_steps_are_found_by_name(
    spark: SparkSession, build: Callable[[DataFrame], DataFrame], said: tuple[str, ...]
) -> None:
    """Each once, from the sink back."""
    assert spark_state_steps(build(spark.readStream.format("rate").load())) == said


@pytest.mark.slow
def test_each_stateful_step_is_stored_with_what_it_reads(spark: SparkSession) -> None:
    """Two that are alike are told apart by their sources."""

    def distinct(rate: int) -> DataFrame:
        return spark.readStream.format("rate").option("rowsPerSecond", rate).load().dropDuplicates(["value"])

    one, two = stateful_steps(distinct(1).union(distinct(2)))
    assert (one.name, two.name) == ("dropDuplicates", "dropDuplicates")
    assert one != two
    assert stateful_steps(distinct(2).union(distinct(1))) == (two, one)


@pytest.mark.slow
def test_steps_without_state_on_the_stream_are_none(spark: SparkSession) -> None:
    """A join with a table, and an aggregation of the table."""
    rows, table = spark.readStream.format("rate").load(), spark.range(10)
    joined = rows.join(table.groupBy("id").count(), rows.value == F.col("id")).where("value > 1").select("value")
    assert spark_state_steps(joined) == ()


@pytest.mark.parametrize(
    "master", ["local[4]", "local[4,4]", "local-cluster[2,3,1024]", "spark://127.0.0.1:7077", "spark://localhost:7077"]
)
def test_executors_on_the_drivers_machine_share_its_disk(master: str) -> None:
    """Nothing more is needed there."""
    check_spark_state(("limit",), {"spark.master": master}, None)


@pytest.mark.parametrize("master", ["k8s://https://10.0.0.1", "spark://node-1:7077", "yarn", "spark://127.0.0.1.example:7077"])
def test_elsewhere_a_shared_folder_is_needed(master: str) -> None:
    """The refusal names the step, the field and what to do; with the folder, or without such steps, all is well."""
    with pytest.raises(InvalidInputError, match=r"^spec\.checkpointing\.sparkLocation: .* streaming limit, .*Set it to a folder"):
        check_spark_state(("limit", "dropDuplicates"), {"spark.master": master}, None)
    check_spark_state(("limit",), {"spark.master": master}, "file:///mnt/shared")
    check_spark_state((), {"spark.master": master}, None)


def test_sparks_second_format_of_state_is_refused() -> None:
    """Where there is such state: a skipped batch would end the query each time."""
    settings = {"spark.master": "local[2]", "spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
    with pytest.raises(InvalidInputError, match=r"^spec\.sparkConf\[spark\.sql.*Version\]: .*limit it must be 1.*Remove it"):
        check_spark_state(("limit",), settings, None)
    check_spark_state((), settings, None)


@pytest.mark.parametrize("step", ["transformWithState", "transformWithStateInPandas"])
def test_transform_with_state_is_refused(step: str) -> None:
    """A new driver was seen to look for its schema files in the location of the lost one, again and again."""
    with pytest.raises(InvalidInputError, match=rf"{step} names its schema files.*job\.key_by"):
        check_spark_state(("limit", step), {"spark.master": "local[2]"}, None)
