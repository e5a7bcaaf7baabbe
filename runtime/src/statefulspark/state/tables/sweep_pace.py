"""SweepPace: the schedule of a sweep. Rounds are paced by time and not by counts of entries, so the bound holds for any traffic.

A sweep goes round its state once in two fifths of the time to live. So an entry is deleted at most that long after it has expired, and
expired entries are at most two fifths of those that were live.
"""

from __future__ import annotations

from typing import Final

_ROUNDS_PER_TTL: Final = (2, 5)


class SweepPace:
    """When a sweep should be where. Times are processing times in milliseconds; progress is the share of a round that is done.

    Args:
        ttl_ms: The state's time to live.
        groups: Number of key groups in a round.
    """

    __slots__ = ("_ahead_max", "_began_ms", "_round_ms")

    def __init__(self, ttl_ms: int, groups: int) -> None:
        self._ahead_max = 1 / groups
        part, of = _ROUNDS_PER_TTL
        self._round_ms = max(1, ttl_ms * part // of)
        self._began_ms: float | None = None

    @property
    def round_ms(self) -> int:
        """Time for one round."""
        return self._round_ms

    def start(self, now_ms: int) -> float | None:
        """Begin the schedule if it has not begun; return at which share of the round the sweep starts then, else None.

        The share follows from the clock. So a job that restarts more often than once per round still visits all its key groups.
        """
        if self._began_ms is not None:
            return None
        self._began_ms = now_ms - now_ms % self._round_ms
        return now_ms % self._round_ms / self._round_ms

    def target(self, now_ms: int) -> float:
        """Progress that the sweep should have; more than 1 if the round should have ended."""
        return 0.0 if self._began_ms is None else (now_ms - self._began_ms) / self._round_ms

    def lag(self, now_ms: int, progress: float) -> float:
        """How far the sweep is behind, in rounds; negative if it is ahead."""
        return self.target(now_ms) - progress

    def whole_round(self, now_ms: int, progress: float) -> None:
        """Let one whole round be due now."""
        if self._began_ms is not None:
            self._began_ms = now_ms - (1 + progress) * self._round_ms

    def round_ended(self) -> None:
        """The next round begins when it should, even if this one was late: entries are visited once per round in the long run."""
        if self._began_ms is not None:
            self._began_ms += self._round_ms

    def moved(self, now_ms: int, progress: float) -> None:
        """The clock or the sweep has moved.

        Of several rounds that are due at once, one is enough: it removes all that has expired. A sweep that is ahead, because it made checks
        that the schedule did not ask for, continues from where it is, at the same speed. Otherwise it would wait, and entries that expire
        meanwhile would stay for more than a round.
        """
        lag = self.lag(now_ms, progress)
        if lag > 1:
            self._began_ms = now_ms - (1 + progress) * self._round_ms
        elif lag < -self._ahead_max:
            self._began_ms = now_ms - (progress - self._ahead_max) * self._round_ms
