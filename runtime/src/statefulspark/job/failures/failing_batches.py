"""FailingBatches: consecutive failures, the time of the first and the last error, until a batch is committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from statefulspark.coordinator.controls import JobError, JobFailing
from statefulspark.errors import UserFunctionError

MESSAGE_MAX = 500
"""Characters of an error's first sentence that are kept."""
_TRACEBACK: Final = "Traceback (most recent call last):"


class FailingBatches:
    """Counts failures in a row; called by many threads.

    A failure counts until a batch is committed after it, or until the job is known to be idle: it waits for new rows and has no batch to
    repeat, so what failed was no batch, or has been repaired.
    """

    def __init__(self, committed: Callable[[], int], *, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        """Nothing has failed yet.

        Args:
            committed: number of the last committed batch.
            now_ms: the wall clock, milliseconds since the epoch.
        """
        self._committed = committed
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._failing: JobFailing | None = None
        self._after = -1

    def failed(self, error: BaseException) -> None:
        """Record a failure of the query, or of a slot that was starting."""
        with self._lock:
            before = self._present()
            self._after = self._committed()
            self._failing = JobFailing(
                failures=before.failures + 1 if before is not None else 1,
                since_ms=before.since_ms if before is not None else self._now_ms(),
                error=brief(error),
            )

    def idle(self) -> None:
        """The job waits for rows and has no batch to repeat."""
        with self._lock:
            self._failing = None

    def present(self) -> JobFailing | None:
        """The failures since the last committed batch; None if there are none."""
        with self._lock:
            return self._present()

    def _present(self) -> JobFailing | None:
        if self._failing is not None and self._committed() > self._after:
            self._failing = None
        return self._failing


def brief(error: BaseException) -> JobError:
    """The type of an error, its first sentence, and the message of the exception that the user's function raised.

    Tracebacks are left to the log: they quote code, and what a driver says is copied.
    """
    full = JobError.of(error)
    first = next((line.strip() for line in full.message.splitlines() if line.strip()), full.reason)
    if isinstance(error, UserFunctionError) and (raised := _raised_message(error.user_traceback)):
        first = f"{first}: {raised}"
    return JobError(reason=full.reason, message=first if len(first) <= MESSAGE_MAX else f"{first[: MESSAGE_MAX - 3]}...")


def _raised_message(traceback: str) -> str:
    """The first line of the exception's own message, which may have indented lines like frames.

    ``Type: message`` is the first line after the frames of the last traceback, which are indented.
    """
    lines = traceback.splitlines()
    header = max((number for number, line in enumerate(lines) if line == _TRACEBACK), default=-1)
    raised = next((number for number in range(header + 1, len(lines)) if not lines[number].startswith(" ")), len(lines))
    kind, _, message = "\n".join(lines[raised:]).partition(":")
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return "" if kind.split() != [kind] else first
