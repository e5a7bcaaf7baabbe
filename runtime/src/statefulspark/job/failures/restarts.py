"""Restart strategies: whether and when a failed query is restarted. Names, meanings and defaults are Flink's. Pure."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol


class RestartStrategy(Protocol):
    """Decides after each failure."""

    def next_pause_s(self, now_s: float) -> float | None:
        """Seconds to wait before the next start, or None to stop retrying. ``now_s`` is a monotonic clock."""


@dataclass(slots=True)
class NoRestart:
    """The job fails with its query."""

    def next_pause_s(self, now_s: float) -> float | None:  # noqa: ARG002  the protocol's argument
        """Do not restart."""
        return None


@dataclass(slots=True, kw_only=True)
class FixedDelay:
    """``attempts`` restarts, ``delay_s`` apart."""

    attempts: int = 1
    delay_s: float = 1.0
    used: int = 0

    def next_pause_s(self, now_s: float) -> float | None:  # noqa: ARG002  the protocol's argument
        """Count down."""
        self.used += 1
        return self.delay_s if self.used <= self.attempts else None


@dataclass(slots=True, kw_only=True)
class FailureRate:
    """Stops restarting when more than ``failures`` fall into ``interval_s``."""

    failures: int = 1
    interval_s: float = 60.0
    delay_s: float = 1.0
    times: deque[float] = field(default_factory=deque)

    def next_pause_s(self, now_s: float) -> float | None:
        """Look at the last interval."""
        self.times.append(now_s)
        while self.times and now_s - self.times[0] > self.interval_s:
            self.times.popleft()
        return self.delay_s if len(self.times) <= self.failures else None


@dataclass(slots=True, kw_only=True)
class ExponentialDelay:
    """Pauses grow by ``multiplier`` up to ``max_s`` and start again after ``reset_s`` without a failure."""

    initial_s: float = 1.0
    max_s: float = 60.0
    multiplier: float = 1.5
    reset_s: float = 3600.0
    jitter: float = 0.1
    attempts: int | None = None
    """Restarts before giving up; None = without end."""
    current_s: float = 0.0
    last_s: float | None = None
    used: int = 0

    def next_pause_s(self, now_s: float) -> float | None:
        """Grow, or start again after a quiet time."""
        if self.last_s is None or now_s - self.last_s > self.reset_s:
            self.current_s, self.used = self.initial_s, 0
        else:
            self.current_s = min(self.max_s, self.current_s * self.multiplier)
        self.last_s = now_s
        self.used += 1
        if self.attempts is not None and self.used > self.attempts:
            return None
        return self.current_s * (1 + random.uniform(-self.jitter, self.jitter))
