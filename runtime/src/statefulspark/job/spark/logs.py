"""Rate-limits Spark's own log on Kubernetes: while the API server is unavailable, a repeated error is logged once in five minutes.

Spark lists its executors' pods every 30 s and logs each failure as an error with its stack trace. It retries by itself, and the job
continues, because batches do not need the API server; only new executors have to wait for it.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

LOGGER: Final = "org.apache.spark.util.Utils"
POLLING_THREAD: Final = "kubernetes-executor-pod-polling-sync"
_PER_S: Final = 1 / 300


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
