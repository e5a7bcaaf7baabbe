"""Keeps what Spark logs by itself from burying the job's errors, and failed tasks of jobs in a notebook out of its output.

On Kubernetes, while the API server is unavailable, a repeated error is logged once in five minutes: Spark lists its executors' pods every
30 s and logs each failure as an error with its stack trace. It retries by itself, and the job continues, because batches do not need the
API server; only new executors have to wait for it.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

LOGGER: Final = "org.apache.spark.util.Utils"
POLLING_THREAD: Final = "kubernetes-executor-pod-polling-sync"
_PER_S: Final = 1 / 300
_QUERY_CONTEXTS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def silence_query_contexts() -> None:
    """Keep PySpark from writing each exception that names a place in a query to stderr, as JSON with Java's frames: the exception is raised too."""
    for name in _QUERY_CONTEXTS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def limit_polling_errors(session: SparkSession) -> None:
    """Lets one failure of Spark's pod polling through every five minutes. Other messages of the same logger are not affected."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  PySpark offers no public way
    log4j = jvm.org.apache.logging.log4j
    result = jvm.java.lang.Class.forName("org.apache.logging.log4j.core.Filter$Result").getEnumConstants()
    accept, neutral, _deny = result
    polling = log4j.core.filter.RegexFilter.createFilter(f"(?s).*{POLLING_THREAD}.*", None, False, neutral, accept)
    seldom = log4j.core.filter.BurstFilter.newBuilder().setLevel(log4j.Level.ERROR).setRate(_PER_S).setMaxBurst(1).build()
    filters = session.sparkContext._gateway.new_array(log4j.core.Filter, 2)  # type: ignore[union-attr]  # noqa: SLF001  a Spark that is up has a gateway
    filters[0], filters[1] = polling, seldom
    context = log4j.LogManager.getContext(False)
    logger = log4j.core.config.LoggerConfig(LOGGER, None, True)
    logger.addFilter(log4j.core.filter.CompositeFilter.createFilters(filters))
    context.getConfiguration().addLogger(LOGGER, logger)
    context.updateLoggers()


FILE_LISTER: Final = "org.apache.spark.util.HadoopFSUtils"


def show_missing_files(session: SparkSession) -> None:
    """Let Spark's warning through that names an input file which was deleted before a batch read it: the batch goes on without its rows."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  see above
    log4j = jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)
    configuration = context.getConfiguration()
    if not configuration.getLoggers().containsKey(FILE_LISTER):  # one that the user has configured stays as it is
        configuration.addLogger(FILE_LISTER, log4j.core.config.LoggerConfig(FILE_LISTER, log4j.Level.WARN, True))
        context.updateLoggers()


FAILURE_LOGGERS: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
)
"""Each logs a failed batch, with hundreds of Java frames."""
_hidden_lock: Final = threading.Lock()
_hidden: Final[list[str]] = []
_jobs: Final[list[str]] = []


def hide_failures(session: SparkSession, job: str) -> None:
    """Keep failed tasks and batches out of Spark's log while a job runs that shows the error itself; see `show_failures`."""
    with _hidden_lock:
        _jobs.append(job)
        if len(_jobs) > 1:
            return
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001  see above
        log4j = jvm.org.apache.logging.log4j
        context = log4j.LogManager.getContext(False)
        configuration = context.getConfiguration()
        # A logger that the user has configured stays as it is.
        _hidden[:] = [name for name in FAILURE_LOGGERS if not configuration.getLoggers().containsKey(name)]
        for name in _hidden:
            configuration.addLogger(name, log4j.core.config.LoggerConfig(name, log4j.Level.OFF, True))
        context.updateLoggers()


def show_failures(session: SparkSession, job: str) -> None:
    """Let Spark log failures again when no job is left that hides them."""
    with _hidden_lock:
        _jobs.remove(job)
        if _jobs:
            return
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001  see above
        context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
        for name in _hidden:
            context.getConfiguration().removeLogger(name)
        _hidden.clear()
        context.updateLoggers()
