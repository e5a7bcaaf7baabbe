"""Executors are asked for and ended through Spark's own scheduler, with real executor processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from statefulspark.errors import UnavailableError
from statefulspark.job.spark.executors import await_executors, executor_counter, request_executors, resize_executors
from statefulspark.job.spark.logs import LOGGER, POLLING_THREAD, limit_polling_errors


@pytest.fixture(scope="module")
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
    ends = time.monotonic() + 150
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


def test_an_api_server_that_is_away_does_not_fill_the_log(session: SparkSession) -> None:
    """Spark's failed pod polls come once in five minutes, after a change of the log level too; other errors of the same logger always."""
    limit_polling_errors(session)
    session.sparkContext.setLogLevel("OFF")
    session.sparkContext.setLogLevel("ERROR")
    jvm: Any = session.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    logger = log4j.LogManager.getContext(False).getConfiguration().getLoggerConfig(LOGGER)
    assert logger.getName() == LOGGER
    assert log4j.LogManager.getLogger(LOGGER).isErrorEnabled()

    def passes(text: str) -> bool:
        message = log4j.message.SimpleMessage(text)
        event = log4j.core.impl.Log4jLogEvent.newBuilder().setLoggerName(LOGGER).setLevel(log4j.Level.ERROR).setMessage(message).build()
        return str(logger.getFilter().filter(event)) != "DENY"

    polling = f"Uncaught exception in thread {POLLING_THREAD}"
    assert [passes(polling) for _ in range(3)] == [True, False, False]
    assert [passes("Uncaught exception in thread another") for _ in range(3)] == [True, True, True]
    assert not passes(polling)
