"""Executors are asked for and ended through Spark's own scheduler, with real executor processes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from statefulspark.errors import UnavailableError
from statefulspark.job.executors import await_executors, executor_counter, request_executors, resize_executors


@pytest.fixture
def session() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.instances", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    yield session
    session.stop()


def until(count: int, session: SparkSession) -> int:
    counter = executor_counter(session)
    ends = time.monotonic() + 60
    while counter() != count and time.monotonic() < ends:
        time.sleep(0.1)
    return counter()


def test_executors_go_and_come_as_asked(session: SparkSession) -> None:
    assert until(2, session) == 2
    resize_executors(session, 1)
    request_executors(session, 1)
    assert until(1, session) == 1
    request_executors(session, 2)
    assert until(2, session) == 2
    # There are two workers with a core each, so a third executor does not come, and the wish is taken back.
    with pytest.raises(UnavailableError, match="0 of 1 more executors"):
        await_executors(session, 3, 3.0)
    assert until(2, session) == 2
    # A task on each shows that they work.
    assert session.sparkContext.parallelize(range(10), 4).map(lambda number: number * 2).sum() == 90
