"""The executors of the running Spark application: how many there are, and on Kubernetes as many as the slots need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from pyspark.sql import SparkSession

_log = structlog.get_logger("statefulspark.executors")


def executor_counter(session: SparkSession) -> Callable[[], int]:
    """How many executors the application has now; 1 when Spark is embedded."""

    def count() -> int:
        # The driver's own block manager counts too.
        return max(1, int(_context(session).getExecutorMemoryStatus().size()) - 1)

    return count


def resize_executors(session: SparkSession, wanted: int) -> None:
    """Have ``wanted`` executors, where Spark itself makes them (Kubernetes); elsewhere nothing happens.

    New ones come when the cluster has room. Surplus ones are ended at once, so no slot may be running.
    """
    if str(session.sparkContext.master).startswith("k8s://"):
        request_executors(session, wanted)


def request_executors(session: SparkSession, wanted: int) -> None:
    """Ask Spark's scheduler for ``wanted`` executors, and to end what is above that."""
    context = _context(session)
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  PySpark offers no public way
    converters = jvm.scala.jdk.javaapi.CollectionConverters
    present = [str(identity) for identity in converters.asJava(context.getExecutorIds())]
    surplus = present[wanted:]
    _log.info("executors", wanted=wanted, present=len(present))
    # First the wish, so that what is ended is not replaced.
    empty = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
    context.requestTotalExecutors(wanted, 0, empty)
    if surplus:
        context.killExecutors(converters.asScala(jvm.java.util.ArrayList(surplus)).toSeq())


def _context(session: SparkSession) -> Any:
    return session.sparkContext._jsc.sc()  # noqa: SLF001  PySpark offers no public way
