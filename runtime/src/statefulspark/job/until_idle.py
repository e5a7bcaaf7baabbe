"""Ends a job that has no input left: ``statefulspark run --until-idle``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from statefulspark.coordinator.waiting import settled
from statefulspark.errors import StatefulSparkError

IDLE_STOP_S: Final = 600.0
"""Timeout of the last checkpoint of a job that has become idle, and of firing its timers before it."""
_POLL_S: Final = 0.1


def stop_when_idle(
    *,
    ended: threading.Event,
    query: Callable[[], StreamingQuery | None],
    idle: Callable[[], bool],
    stop: Callable[[], None],
    fail: Callable[[StatefulSparkError], None],
) -> None:
    """Wait until the sources have nothing more and no timer is due, then stop the job.

    Args:
        ended: Set when the job has ended in another way.
        query: The query if batches may run now, else None (restart, rescale).
        idle: True if no batch runs and no timer is due.
        stop: Stops the job with its state; raises ConflictError while another command runs.
        fail: Ends the job with an error.
    """
    while not ended.is_set():
        current = query()
        if current is None or not _caught_up(current):
            ended.wait(_POLL_S)
            continue
        if current is query() and current.isActive and idle():
            if settled(stop, fail):
                return
            continue
        if not current.isActive:
            ended.wait(_POLL_S)  # with availableNow the query ends by itself, and the job with it


def _caught_up(query: StreamingQuery) -> bool:
    """Wait until the query has processed what its sources have; False when it fails, which is the watch's business."""
    try:
        query.processAllAvailable()
    except Exception:  # noqa: BLE001  Py4J raises many kinds when a query or Spark ends
        return False
    return True
