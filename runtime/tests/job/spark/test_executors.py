"""Executors are asked for and ended through Spark's own scheduler, with real executor processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from statefulspark.errors import UnavailableError
from statefulspark.job.spark.executors import await_executors, executor_counter, has_executors, request_executors, resize_executors
from statefulspark.job.spark.logs import LOGGER, POLLING_THREAD, limit_polling_errors
from statefulspark.job.spark.worker_python import worker_environment


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    patch = pytest.MonkeyPatch()
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in worker_environment().items():
        patch.setenv(name, value)
        builder = builder.config(f"spark.executorEnv.{name}", value)  # an earlier test may have started this process's JVM without it
    session = (
        builder.config("spark.executor.memory", "512m")
        .config("spark.executor.instances", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    yield session
    session.stop()
    patch.undo()


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


def test_an_executor_that_dies_after_others_were_ended_is_replaced(session: SparkSession) -> None:
    def executor_process(_: int) -> int:
        # Python's worker is a child of Python's daemon, which is a child of the JVM. A nested function needs no module in the executor.
        pid = os.getpid()
        while "java" not in Path(f"/proc/{pid}/comm").read_text():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        return pid

    request_executors(session, 2)
    assert until(2, session) == 2
    request_executors(session, 1)
    assert until(1, session) == 1
    first = session.sparkContext.parallelize([0]).map(executor_process).first()
    os.kill(first, signal.SIGKILL)
    with ThreadPoolExecutor(1) as pool:
        try:
            assert pool.submit(session.sparkContext.parallelize([0], 1).map(executor_process).first).result(timeout=150) != first
        finally:
            session.sparkContext.cancelAllJobs()


def test_workers_import_the_compiled_package_of_this_interpreter(session: SparkSession) -> None:
    found = session.sparkContext.parallelize([0]).map(lambda _: (sys.executable, pyspark.__file__)).first()
    assert found == (sys.executable, pyspark.__file__)


def test_it_is_known_whether_an_executor_is_left(session: SparkSession) -> None:
    assert has_executors(session)
    request_executors(session, 0)
    ends = time.monotonic() + 60
    while has_executors(session) and time.monotonic() < ends:
        time.sleep(0.1)
    assert not has_executors(session)
    request_executors(session, 1)
    while not has_executors(session) and time.monotonic() < ends:
        time.sleep(0.1)
    assert has_executors(session)


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
