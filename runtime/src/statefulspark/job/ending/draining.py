"""Drains a job: lets every event-time timer fire, by a batch with the greatest watermark."""

from __future__ import annotations

import math
from collections.abc import Callable

from statefulspark.coordinator.query.lifecycle import QueryLifecycle
from statefulspark.coordinator.waiting import wait_for
from statefulspark.errors import ConflictError, StatefulSparkError


class Draining:
    """Drain of a job: its timers fire before it ends.

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

    def drain(self, timeout_s: float = math.inf) -> None:
        """Fire the timers and wait until none is left.

        Args:
            timeout_s: Of a command. Defaults to no limit, because timers grow with data, and a job that cannot fire them fails.

        Raises:
            ConflictError: The job went back to its last checkpoint meanwhile.
            StatefulSparkError: The job has ended, or timers were left after ``timeout_s``; then the job runs on.
        """
        self._begin()
        late = f"the job was not drained within {timeout_s:.0f} s and runs on"
        try:
            wait_for(self._lifecycle.idle, timeout_s, check_open=self._check_open, late=lambda: late)
            self._check_draining()
        except StatefulSparkError:
            self._running = False
            self._lifecycle.drain(on=False)
            raise

    def _check_draining(self) -> None:
        """Raise if the job is no longer drained.

        Raises:
            ConflictError: It has gone back.
        """
        if not self._lifecycle.draining:
            raise ConflictError("the job went back to its last checkpoint while it was drained. Repeat the command")

    def went_back(self) -> None:
        """Rows are processed again, which the watermark of a drained job would make late."""
        self._running = self._done = False
        self._lifecycle.drain(on=False)

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
