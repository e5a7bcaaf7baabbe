"""Executors of the running Spark application: counts them, and on Kubernetes requests as many as the slots need."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Final

import structlog
from pyspark.sql import SparkSession

from statefulspark.errors import UnavailableError
from statefulspark.job.spark.kubernetes import is_on_kubernetes
from statefulspark.job.spark.session import is_embedded

EXECUTORS_TIMEOUT_S: Final = 180.0
"""Maximum time that a rescale waits for new executors: nodes may have to pull the image first."""
_POLL_S: Final = 0.1

_log = structlog.get_logger("statefulspark.executors")


def executor_counter(session: SparkSession) -> Callable[[], int]:
    """Number of executors of the application; 1 if Spark is embedded."""

    def count() -> int:
        # Asks the scheduler, not the block managers: Spark sometimes lists that of an ended executor for the rest of the application.
        return 1 if is_embedded(str(session.sparkContext.master)) else max(1, len(_executor_ids(session)))

    return count


def has_executors(session: SparkSession) -> bool:
    """Return whether an executor is connected to the driver; True if Spark is embedded, or does not answer."""
    try:
        backend = _context(session).schedulerBackend()
        # One that has lost its connection is listed until Kubernetes confirms that its pod has ended.
        return is_embedded(str(session.sparkContext.master)) or any(map(backend.isExecutorActive, _executor_ids(session)))
    except Exception as error:  # noqa: BLE001  Py4J raises many kinds when the JVM is ending
        _log.info("Spark does not list its executors", error=str(error)[:200])
        return True


def resize_executors(session: SparkSession, wanted: int) -> None:
    """Have ``wanted`` executors, where Spark itself makes them (Kubernetes); elsewhere nothing happens.

    New ones come when the cluster has room. Surplus ones are ended at once, so no slot may be running.
    """
    if _makes_executors(session):
        request_executors(session, wanted)


def grow_executors(session: SparkSession, wanted: int, timeout_s: float) -> None:
    """Request at least ``wanted`` executors, if Spark creates them itself, and wait for them while batches continue.

    Raises:
        UnavailableError: The cluster did not start them in time; the wish is taken back, and what runs is as before.
    """
    if _makes_executors(session) and executor_counter(session)() < wanted:
        await_executors(session, wanted, timeout_s)


def await_executors(session: SparkSession, wanted: int, timeout_s: float) -> None:
    """The waiting part of ``grow_executors``."""
    counter = executor_counter(session)
    before, ours = counter(), frozenset(_executor_ids(session))
    request_executors(session, wanted)
    deadline = time.monotonic() + timeout_s
    while (present := counter()) < wanted:
        if time.monotonic() > deadline:
            request_executors(session, before, keep=ours)  # slots run in these
            raise UnavailableError(
                f"the cluster started {present - before} of {wanted - before} more executors within {timeout_s:.0f} s; the cluster may not have enough resources"
            )
        time.sleep(_POLL_S)


def request_executors(session: SparkSession, wanted: int, *, keep: Collection[str] = ()) -> None:
    """Ask Spark's scheduler for ``wanted`` executors, and to end what is above that, those of ``keep`` last."""
    context = _context(session)
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  PySpark offers no public way
    present = sorted(_executor_ids(session), key=lambda identity: identity not in keep)
    surplus = present[wanted:]
    _log.info("requesting executors", target=wanted, running=len(present))
    # First the wish, so that what is ended is not replaced.
    empty = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
    context.requestTotalExecutors(wanted, 0, empty)
    if surplus:
        ended = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.ArrayList(surplus)).toSeq()
        # SparkContext.killExecutors also lowers the wish by what it ends, and an executor that dies later would not be replaced.
        lowers_the_wish, counts_as_failure, even_if_busy = False, False, True
        context.schedulerBackend().killExecutors(ended, lowers_the_wish, counts_as_failure, even_if_busy)


def _makes_executors(session: SparkSession) -> bool:
    return is_on_kubernetes(str(session.sparkContext.master))


def _executor_ids(session: SparkSession) -> list[str]:
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  PySpark offers no public way
    return [str(identity) for identity in jvm.scala.jdk.javaapi.CollectionConverters.asJava(_context(session).getExecutorIds())]


def _context(session: SparkSession) -> Any:
    return session.sparkContext._jsc.sc()  # noqa: SLF001  PySpark offers no public way
