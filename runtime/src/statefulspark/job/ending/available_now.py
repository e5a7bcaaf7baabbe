"""Ends a job whose query has ended by itself, because it has processed all available input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from statefulspark.coordinator.waiting import settled

_POLL_S = 0.1


class Finish:
    """Stops a job with a checkpoint, in a thread of its own, because checkpoints need the thread that watches the query.

    Args:
        stop: Takes the last checkpoint and ends the job as FINISHED.
        fail: Ends the job with an error.
    """

    def __init__(self, stop: Callable[[], object], fail: Callable[[Exception], None]) -> None:
        self._stop = stop
        self._fail = fail
        self._query: object | None = None

    def begin(self, query: object, current: Callable[[], object | None]) -> None:
        """Stop the job; does nothing if that has begun for this query.

        Args:
            query: The query that has ended.
            current: The job's query: another one if a rescale comes first.
        """
        if query is not self._query:
            self._query = query
            threading.Thread(target=self._run, args=(query, current), name="job-finish", daemon=True).start()

    def _run(self, query: object, current: Callable[[], object | None]) -> None:
        while query is current():
            if settled(self._stop, self._fail):
                return
            time.sleep(_POLL_S)
