"""What is read of a query that a pipeline has built: its sources in Spark's order, its trigger, its options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from runtime.tests.small_session import NOWHERE, small_session

from statefulspark import KeyedProcessFunction
from statefulspark.checkpoint.formats.pipeline import TICKS
from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.session import PROTOCOL_SETTINGS
from statefulspark.job.spark.sources import source_ids, telling
from statefulspark.job.spark.stream_writer import check_writer, ends_by_itself
from statefulspark.pipeline.job import Job


class Nothing(KeyedProcessFunction):
    """Gives out nothing."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        return ()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session of this module's own."""
    with small_session() as session:
        yield session


@pytest.mark.slow
def test_places_share_a_number_if_they_read_one_relation(spark: SparkSession, tmp_path: Path) -> None:
    """Two branches and a chain over one reader, a second reader of the same folder, and rows that go past every step."""
    job = Job(spark=spark, name="job", args=[], parallelism=2, max_parallelism=8, endpoint=NOWHERE, hashings={})

    def rows() -> DataFrame:
        return spark.readStream.schema("k string, v bigint").json(str(tmp_path))

    def step(df: DataFrame, uid: str) -> DataFrame:
        return job.key_by(df, "k").process(Nothing(), "k string, v bigint", uid=uid)

    one, two = rows(), rows()
    plan = step(step(one.union(two), "first"), "second").union(step(one, "third")).union(two)
    found = [(each.provider, each.feeds, each.number) for each in source_ids(plan)]
    assert found == [
        ("json", "first", 0),
        ("json", "first", 1),
        (TICKS, "first", 2),
        (TICKS, "second", 3),
        ("json", "third", 0),
        (TICKS, "third", 4),
        ("json", "", 1),
    ]
    users = [each for each in source_ids(plan) if each.provider == "json"]
    assert {(each.identity, each.label) for each in users} == {(users[0].identity, f"json {tmp_path}")}


def test_where_a_source_reads_is_told_without_secrets_and_rate_limits() -> None:
    """A password that changes makes no other source of it, and no secret is stored, not even as a digest."""
    assert telling("json", {"path": "/in", "maxFilesPerTrigger": "1"}) == {"path": "/in"}
    kafka = {"subscribe": "a,b", "kafka.bootstrap.servers": "host:1", "kafka.sasl.jaas.config": "x", "maxOffsetsPerTrigger": "5"}
    assert telling("kafka", kafka) == {"subscribe": "a,b"}
    other = {"url": "u", "Password": "p", "apiToken": "t", "accessKeyId": "i"}
    assert telling("other", other) == {"url": "u"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda writer: writer.trigger(once=True), r"trigger\(once=...\): is not supported. Use trigger\(availableNow=True\)"),
        (
            lambda writer: writer.trigger(continuous="1 second"),
            r"trigger\(continuous=...\): is not supported. Use trigger\(processingTime=...\)",
        ),
        (
            lambda writer: writer.trigger(realTime="5 seconds"),
            r"trigger\(realTime=...\): is not supported. Use trigger\(processingTime=...\)",
        ),
        (lambda writer: writer.option("asyncProgressTrackingEnabled", "true"), r"option\('asyncProgressTrackingEnabled'\): .*Remove it"),
        (
            lambda writer: writer.option("asyncprogresstrackingcheckpointintervalms", 1),
            r"asyncprogresstrackingcheckpointintervalms.*Remove it",
        ),
        (lambda writer: writer.option("checkpointLocation", "/tmp/c"), r"option\('checkpointLocation'\): .*spec.checkpointing.dir"),
    ],
)
def test_what_would_break_the_protocol_is_refused_by_name(spark: SparkSession, change: Callable[[Any], Any], said: str) -> None:
    """Spark itself takes each of them without a word."""
    with pytest.raises(InvalidInputError, match=said):
        check_writer(spark, change(spark.readStream.format("rate").load().writeStream))


@pytest.mark.slow
@pytest.mark.parametrize("key", PROTOCOL_SETTINGS)
def test_settings_that_the_pipeline_changes_in_its_code_are_refused(spark: SparkSession, key: str) -> None:
    """A manifest's are refused before Spark starts."""
    writer = spark.readStream.format("rate").load().writeStream
    needed = PROTOCOL_SETTINGS[key]
    spark.conf.set(key, {"true": "false", "false": "true"}.get(needed, "2"))
    try:
        with pytest.raises(InvalidInputError, match=f"{key}: must be '{needed}'.*Remove it"):
            check_writer(spark, writer)
    finally:
        spark.conf.set(key, needed)


@pytest.mark.slow
def test_triggers_that_are_supported(spark: SparkSession) -> None:
    """Only one of them ends the query."""
    writer = spark.readStream.format("rate").load().writeStream
    check_writer(spark, writer)
    assert not ends_by_itself(writer)
    check_writer(spark, writer.trigger(processingTime="1 second"))
    assert not ends_by_itself(writer)
    check_writer(spark, writer.trigger(availableNow=True))
    assert ends_by_itself(writer)
