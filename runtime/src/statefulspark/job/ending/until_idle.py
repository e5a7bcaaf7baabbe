"""Waits until a job has no input left, and ends it then: ``statefulspark run --until-idle``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from statefulspark.coordinator.waiting import settled
from statefulspark.errors import StatefulSparkError

IDLE_STOP_S: Final = 600.0
"""For how long the last checkpoint of a job that has become idle may not move."""
_POLL_S: Final = 0.1


class UntilIdle:
    """Waits until the sources have nothing more and no timer is due.

    Args:
        ended: Set when the job has ended in another way.
        query: The query if batches may run now, else None (restart, rescale).
        idle: True if no batch runs and no timer is due.
    """

    def __init__(self, *, ended: threading.Event, query: Callable[[], StreamingQuery | None], idle: Callable[[], bool]) -> None:
        self._ended = ended
        self._query = query
        self._idle = idle

    def begin(self, stop: Callable[[], None], fail: Callable[[StatefulSparkError], None]) -> None:
        """Wait in a thread, and stop the job then.

        Args:
            stop: Stops the job with its state; raises ConflictError while another command runs.
            fail: Ends the job with an error.
        """

        def run() -> None:
            while self.wait():
                if settled(stop, fail):
                    return

        threading.Thread(target=run, name="job-until-idle", daemon=True).start()

    def wait(self) -> bool:
        """Wait; False if the job has ended before."""
        while not self._ended.is_set():
            current = self._query()
            if current is None or not _caught_up(current):
                self._ended.wait(_POLL_S)
                continue
            if current is self._query() and current.isActive and self._idle():
                return True
            if not current.isActive:
                self._ended.wait(_POLL_S)  # with availableNow the query ends by itself, and the job with it
        return False


def _caught_up(query: StreamingQuery) -> bool:
    """Wait until the query has processed what its sources have; False when it fails, which is the watch's business."""
    try:
        query.processAllAvailable()
    except Exception:  # noqa: BLE001  Py4J raises many kinds when a query or Spark ends
        return False
    return True
