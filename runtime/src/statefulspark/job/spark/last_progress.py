"""LastProgress: Spark's report of the last batch of a query, read at most about once a second."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

_FRESH_S: Final = 0.9


class LastProgress:
    """Keeps the report, because everyone who asks for the status of a job would ask the JVM for it. Thread-safe.

    Args:
        query: Returns the query that runs; None before the first.
        now_s: A clock in seconds that is never set.
    """

    def __init__(self, query: Callable[[], StreamingQuery | None], *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._query = query
        self._now_s = now_s
        self._lock = threading.Lock()
        self._read_s = float("-inf")
        self._found: Mapping[str, Any] | None = None

    def read(self) -> Mapping[str, Any] | None:
        """Return the report as JSON; None before the first batch. If Spark does not answer, the last report."""
        if not self._lock.acquire(blocking=False):
            return self._found  # another thread reads it
        try:
            query = self._query()
            if query is not None and self._now_s() - self._read_s >= _FRESH_S:
                self._read_s = self._now_s()
                self._found = _progress(query) or self._found
        except Exception:  # noqa: BLE001  Py4J raises many kinds when Spark is on its way out
            return self._found
        finally:
            self._lock.release()
        return self._found


def _progress(query: StreamingQuery) -> Mapping[str, Any] | None:
    # PySpark's own API makes a hundred calls to the JVM.
    progress = query._jsq.lastProgress()  # noqa: SLF001  there is no public way to the JSON
    if progress is None:
        return None
    found: Mapping[str, Any] = json.loads(progress.json())
    return found
