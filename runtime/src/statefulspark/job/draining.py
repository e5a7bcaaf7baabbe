"""Drains a job: lets every event-time timer fire, by a batch with the greatest watermark."""

from __future__ import annotations

from collections.abc import Callable

from statefulspark.coordinator.query_lifecycle import QueryLifecycle
from statefulspark.coordinator.waiting import wait_for
from statefulspark.errors import StatefulSparkError


class Draining:
    """Whether a job is being drained.

    Args:
        lifecycle: Of the job's query.
        when_idle: True if the job is drained when it has no input left.
        check_open: Raises ClosedError if the job has ended.
    """

    def __init__(self, lifecycle: QueryLifecycle, *, when_idle: bool, check_open: Callable[[], None]) -> None:
        self._lifecycle = lifecycle
        self._when_idle = when_idle
        self._check_open = check_open
        self._running = False
        self._done = False

    def drain(self, timeout_s: float) -> None:
        """Fire the timers and wait until none is left.

        Raises:
            StatefulSparkError: The job has ended, or timers were left after ``timeout_s``; then the job runs on.
        """
        self._begin()
        late = f"the job was not drained within {timeout_s:.0f} s and runs on"
        try:
            wait_for(self._lifecycle.idle, timeout_s, check_open=self._check_open, late=lambda: late)
        except StatefulSparkError:
            self._running = False
            self._lifecycle.drain(on=False)
            raise

    def query_must_run_again(self) -> bool:
        """True if a query that has ended by itself runs once more, to fire the timers that draining the job makes due."""
        if self._done or not (self._when_idle or self._running):
            return False
        self._begin()
        left = not self._lifecycle.idle()
        self._done = True
        return left

    def _begin(self) -> None:
        self._running = True
        self._lifecycle.drain()
