"""Arguments and columns of a Kafka sink, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, IntegerType, StringType, StructField, StructType

from statefulspark.errors import InvalidInputError
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.kafka import KafkaSink
from statefulspark.kafka.sink import _check_columns
from statefulspark.pipeline.job import Job


@pytest.fixture
def job() -> Job:
    return Job(
        spark=cast("Any", None),
        name="payments",
        id="uid-7",
        args=[],
        parallelism=2,
        max_parallelism=8,
        endpoint=Endpoint(location="grpc+unix:///", secret=""),
        hashings={},
    )


def sink(job: Job, **changed: Any) -> KafkaSink:
    return KafkaSink(job, **{"uid": "out", "bootstrap_servers": "kafka:9092", "topic": "out"} | changed)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"uid": "a/b"}, "uid: 'a/b' is not a name"),
        ({"uid": ""}, "uid: '' is not a name"),
        ({"transactional_id_prefix": "a b"}, "transactional_id_prefix: 'a b' is not a name"),
        ({"partitions": 0}, "partitions: 0 is not between 1 and 256"),
        ({"transaction_timeout_s": 3600}, "transaction_timeout_s: 3600 is not between 1 and 900"),
        ({"options": {"transactional.id": "x", "acks": "all"}}, "options: transactional.id: the sink sets this itself"),
    ],
)
def test_wrong_arguments_are_named(job: Job, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        sink(job, **changed)
    assert str(refused.value).startswith(says)


def test_sinks_of_a_job_have_ids_of_their_own(job: Job) -> None:
    first, second = sink(job), sink(job, uid="other", transactional_id_prefix="team")
    assert first._settings.identity_of(3) == "statefulspark/uid-7/out/3"
    assert second._settings.identity_of(0) == "team/uid-7/other/0"
    assert job.sinks == (first, second)
    with pytest.raises(InvalidInputError, match="'out' is used by two sinks"):
        sink(job)


def test_options_are_not_shown(job: Job) -> None:
    found = sink(job, options={"sasl.password": "hunter2"})
    assert "hunter2" not in repr(found) + repr(found._settings)


HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"value": StringType(), "user": StringType()}, "a Kafka message has no 'user'"),
        ({"key": StringType()}, "there is no column 'value'"),
        ({"value": DoubleType()}, "the column 'value' is of type double"),
        ({"value": BinaryType(), "key": IntegerType()}, "the column 'key' is of type int"),
        ({"value": BinaryType(), "key": StringType(), "headers": HEADERS, "partition": IntegerType(), "topic": StringType()}, None),
    ],
)
def test_columns_are_checked(columns: dict[str, Any], says: str | None) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    df = cast("DataFrame", SimpleNamespace(schema=schema))
    if says is None:
        _check_columns(df)
        return
    with pytest.raises(InvalidInputError, match=says):
        _check_columns(df)
