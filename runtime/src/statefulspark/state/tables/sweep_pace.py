"""SweepPace: the schedule of a sweep. Rounds are paced by time and not by counts of entries, so the bound holds for any traffic.

Under steady traffic, expired entries that are still stored are at most 0.45 of the live ones. If all of them lie in one key group, such as a map of one busy key,
a round may take 0.45 of the time to live for that. If they are spread evenly, as hashed keys are, they wait for half a round on average, so a round may
take 0.9. An entry is checked once per round while it lives, and once more. What the last round found decides (`EntryPlaces`).
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = (2, 5)
_LONGEST: Final = (9, 10)
_STORED: Final = 0.45
"""Expired entries by live ones, at most. The rest up to a half is for `_OVERDUE`, in which as many more entries expire."""
_OVERDUE: Final = 0.05
_IDLE: Final = (6, 5)


class SweepPace:
    """When a sweep should be where. Times are processing times in milliseconds; progress is the share of a round that is done.

    Args:
        ttl_ms: The state's time to live.
        groups: Number of key groups in a round.
    """

    __slots__ = ("_ahead_max", "_began_ms", "_first_ms", "_longest_ms", "_round_ms", "_ttl_ms")

    def __init__(self, ttl_ms: int, groups: int) -> None:
        self._ahead_max = 1 / groups
        self._ttl_ms = ttl_ms
        self._first_ms, self._longest_ms = _part(ttl_ms, _FIRST), _part(ttl_ms, _LONGEST)
        self._round_ms = self._first_ms
        self._began_ms: float | None = None

    @property
    def idle_ms(self) -> int:
        """Time after which a batch without rows is due for what has expired.

        It is longer than a round and the time to live, so cleanup beside batches with rows has always been earlier, and one such batch removes all.
        """
        return _part(self._ttl_ms, _IDLE)

    @property
    def tolerated(self) -> float:
        """Lag in rounds from which a beginning batch pays for the cleanup: a twentieth of the time to live."""
        return _OVERDUE * self._ttl_ms / self._round_ms

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
        """Lag of the sweep in rounds; negative if it is ahead."""
        return self.target(now_ms) - progress

    def late(self, lag: float) -> float:
        """Return a lag in units of two fifths of the time to live, however long rounds are."""
        return lag * self._round_ms / self._first_ms

    def whole_round(self, now_ms: int, progress: float) -> None:
        """Let one whole round be due now."""
        if self._began_ms is not None:
            self._began_ms = now_ms - (1 + progress) * self._round_ms

    def round_ended(self, now_ms: int, most_at_once: float) -> None:
        """The next round begins when it should, even if this one was late: entries are visited once per round in the long run.

        What is due of the next round stays due, however long that is: of a whole round that is due at once, this may be the greater part.

        Args:
            now_ms: The time.
            most_at_once: Of the entries that expire during a round, the share that is stored at the same time. See `EntryPlaces`.
        """
        due = self.target(now_ms) - 1
        self._round_ms = max(self._first_ms, min(self._longest_ms, int(self._ttl_ms * _STORED / most_at_once)))
        if self._began_ms is not None:
            self._began_ms = now_ms - due * self._round_ms

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


def _part(ttl_ms: int, share: tuple[int, int]) -> int:
    part, of = share
    return max(1, ttl_ms * part // of)
