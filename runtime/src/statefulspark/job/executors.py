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
    if not str(session.sparkContext.master).startswith("k8s://"):
        return
    context = _context(session)
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001  PySpark offers no public way
    present = [str(identity) for identity in gateway.jvm.scala.jdk.javaapi.CollectionConverters.asJava(context.getExecutorIds())]
    surplus = present[wanted:]
    _log.info("executors", wanted=wanted, present=len(present))
    # First the wish, so that what is ended is not replaced.
    context.requestTotalExecutors(wanted, 0, gateway.jvm.scala.collection.immutable.Map.empty())
    if surplus:
        listed = gateway.jvm.java.util.ArrayList()
        for executor in surplus:
            listed.add(executor)
        context.killExecutors(gateway.jvm.scala.jdk.javaapi.CollectionConverters.asScala(listed).toSeq())


def _context(session: SparkSession) -> Any:
    return session.sparkContext._jsc.sc()  # noqa: SLF001  PySpark offers no public way
