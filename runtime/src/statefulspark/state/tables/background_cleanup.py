"""BackgroundCleanup: decides which of a step's sweeps runs next, and how far.

Sweeps follow the clock of committed batches (`SweepPace`). They run in slices, so that a batch or a snapshot never waits for more than one.
`cleanup_incrementally` adds checks for each access on top, or replaces the pace if the default cleanup is off.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from statefulspark.state.api.cleanup_strategies import CleanupStrategies, chosen_pace, sweeps
from statefulspark.state.tables.sweep import Sweep
from statefulspark.state.tables.sweep_pace import SweepPace

_SLICE_CHECKS: Final = 1000
"""Most checks in one slice: about a millisecond."""
_OVERDUE_CHECKS_PER_ENTRY: Final = 5
"""Checks that a beginning batch pays for each entry that the step's last batch wrote. Without other opportunities 3.5 are enough: in the first
round, which is the shortest, an entry is checked at most 2.5 times while it lives, and once more."""
_ROUNDS_WHOLE: Final = 2
"""After so many ends of rounds at the same time, every key group has been visited at it, so nothing that has expired is left."""


@dataclass(slots=True)
class _Paced:
    sweep: Sweep
    pace: SweepPace
    sweeps: bool
    """True if entries are removed while the job runs."""
    by_time: bool
    """True if the sweep follows the clock; otherwise it makes the checks that accesses allow."""
    full_snapshot: bool
    """True if full snapshots leave expired entries out."""
    checks_per_access: int
    """Entries to check for each access to the state, beside those that the clock asks for."""
    for_every_record: bool
    """True if each processed row counts as an access."""
    pending: int = 0
    """Entries to check for accesses of the finished batch, once it is committed."""
    owed: int = 0
    """Entries to check for accesses of committed batches."""
    rounds_at_this_time: int = 0
    """Rounds that have ended since the clock moved."""
    left_over: float = 0.0
    """Lag that was left when the clock moved last, in units of two fifths of the time to live."""
    opened_ms: int | None = None
    """The clock when the sweep began; None before that."""
    pending_writes: bool = False
    """True if the finished batch wrote the state."""
    last_write_ms: int | None = None
    """Processing time of the last committed batch that wrote the state, as far as this backend knows."""

    def due_ms(self, pending_ms: int | None) -> int | None:
        """When the clock has to move because something that is stored has expired: so late that batches with rows have always been earlier.

        Args:
            pending_ms: Processing time of the finished batch, None for none.
        """
        if not (self.sweeps and self.by_time) or self.opened_ms is None:
            return None
        last_write_ms = pending_ms if self.pending_writes and pending_ms is not None else self.last_write_ms
        expiry_ms = self.sweep.next_expiry_ms(self.opened_ms, last_write_ms)
        return None if expiry_ms is None else expiry_ms + self.pace.idle_ms

    def lag(self, now_ms: int) -> float:
        """Lag of the sweep behind the clock, in rounds."""
        return self.pace.lag(now_ms, self.sweep.progress) if self.by_time else 0.0


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """Work of a step's cleanup since the backend was opened."""

    expired: dict[str, int]
    """Entries deleted, by state."""
    seconds: float
    """Time that it took."""
    lag: float
    """Lag of the slowest sweep when the clock moved last, in units of two fifths of the time to live. Above 0.125, expired entries may be
    more than half of the live ones."""
    due_ms: int | None = None
    """Processing time by which the cleanup needs a batch, because something that is stored may have expired; None if nothing will."""


class BackgroundCleanup:
    """The sweeps of one backend. Not thread-safe: the caller must be the only writer of the store.

    Attributes:
        now_ms: The latest processing time of a committed batch; None before the first.
    """

    __slots__ = ("_batch_entries", "_pending_ms", "_seconds", "_states", "_unwritten_ms", "now_ms")

    def __init__(self) -> None:
        self._states: dict[str, _Paced] = {}
        self._pending_ms: int | None = None
        self._unwritten_ms: int | None = None
        self.now_ms: int | None = None
        self._batch_entries = 0
        self._seconds = 0.0

    def add(self, name: str, sweep: Sweep, pace: SweepPace, strategies: CleanupStrategies) -> None:
        """Clean up one more state."""
        chosen = chosen_pace(strategies)
        self._states[name] = state = _Paced(
            sweep,
            pace,
            sweeps=sweeps(strategies),
            by_time=strategies.get_rocksdb_compact_filter_cleanup_strategy() is not None,
            full_snapshot=strategies.in_full_snapshot(),
            checks_per_access=0 if chosen is None else chosen.get_cleanup_size(),
            for_every_record=chosen is not None and chosen.run_cleanup_for_every_record(),
        )
        if self.now_ms is not None:
            _moved(state, self.now_ms)

    def finished(self, written: Mapping[str, int], looked_up: Mapping[str, int], rows: int, processing_time_ms: int) -> None:
        """Record a finished batch.

        Args:
            written: Entries written, by name of the state.
            looked_up: Entries looked up in the cache or the store, by name of the state. What is written has often been looked up before.
            rows: Rows processed.
            processing_time_ms: Of the batch.
        """
        self._pending_ms = processing_time_ms
        self._batch_entries = sum(written.values())
        for name, state in self._states.items():
            accesses = max(written.get(name, 0), looked_up.get(name, 0)) + (rows if state.for_every_record else 0)
            state.pending = accesses * state.checks_per_access
            state.pending_writes = written.get(name, 0) > 0

    def undone(self) -> None:
        """Forget the finished batch, which was rolled back."""
        self._pending_ms = None

    def committed(self) -> None:
        """The finished batch was committed; what it changed may not be in the store yet."""
        if self._pending_ms is None:
            return
        pending_ms, self._pending_ms = self._pending_ms, None
        self._unwritten_ms = pending_ms if self._unwritten_ms is None else min(self._unwritten_ms, pending_ms)
        self.reached(pending_ms)
        for state in self._states.values():
            state.owed += state.pending
            if state.pending_writes:
                state.last_write_ms = pending_ms

    def written(self) -> None:
        """All changes of committed batches are in the store."""
        self._unwritten_ms = None

    def reached(self, processing_time_ms: int) -> None:
        """A batch of this processing time has been committed, here or, for a slot without rows, elsewhere in the job."""
        if self.now_ms is not None and processing_time_ms <= self.now_ms:
            return
        before_ms, self.now_ms = self.now_ms, processing_time_ms
        for state in self._states.values():
            state.left_over = state.pace.late(max(0.0, state.lag(before_ms))) if before_ms is not None else 0.0
            due_ms = state.due_ms(None)
            if due_ms is not None and due_ms <= processing_time_ms:
                # The job was idle. A whole round at this time, so that no visit remembers what has expired since it began.
                state.sweep.restart_visit()
                state.pace.whole_round(processing_time_ms, state.sweep.progress)
            _moved(state, processing_time_ms)

    def run(self) -> bool:
        """Run one slice of the sweep that is furthest behind.

        Returns:
            True if there is more to do.

        Raises:
            UnavailableError: The store cannot be written; run again.
        """
        now_ms = self.now_ms
        if now_ms is None:
            return False
        due = [state for state in self._states.values() if state.sweeps and (state.owed > 0 or state.lag(now_ms) > 0)]
        if not due:
            return False
        state = max(due, key=lambda state: state.lag(now_ms))
        self._slice(state, _SLICE_CHECKS, now_ms, lag_left=0.0)
        return len(due) > 1 or state.owed > 0 or state.lag(now_ms) > 0

    def run_overdue(self) -> None:
        """Let sweeps that have fallen behind catch up, as far as a beginning batch should pay for it; errors as in `run`."""
        now_ms = self.now_ms
        if now_ms is None:
            return
        left = self._batch_entries * _OVERDUE_CHECKS_PER_ENTRY + _SLICE_CHECKS
        for state in sorted(self._states.values(), key=lambda state: -state.lag(now_ms)):
            while left > 0 and state.sweeps and (state.owed > 0 or state.lag(now_ms) > state.pace.tolerated):
                # In slices, because the deletes of one are in memory at once.
                left -= self._slice(state, min(left, _SLICE_CHECKS), now_ms, lag_left=state.pace.tolerated)

    def run_for_full_snapshot(self) -> None:
        """Remove all that has expired of states that ask for it; errors as in `run`."""
        now_ms = self.now_ms
        if now_ms is None:
            return
        for state in list(self._states.values()):
            if state.full_snapshot:
                state.sweep.run_round(now_ms, self._written_ms(now_ms))

    def report(self) -> CleanupReport:
        """Return the work of the cleanup so far. Thread-safe."""
        states = list(self._states.items())
        return CleanupReport(
            expired={name: state.sweep.expired for name, state in states},
            seconds=self._seconds,
            lag=max((state.left_over for _, state in states if state.sweeps), default=0.0),
            due_ms=min((due for _, state in states if (due := state.due_ms(self._pending_ms)) is not None), default=None),
        )

    def _slice(self, state: _Paced, checks_max: int, now_ms: int, *, lag_left: float) -> int:
        """Run a sweep until its lag is ``lag_left``, or else make checks that accesses allow; returns the number of checks."""
        started = time.monotonic()
        written_ms = self._written_ms(now_ms)
        if state.lag(now_ms) > lag_left:
            ran = state.sweep.run(checks_max, now_ms, written_ms, until=state.pace.target(now_ms) - lag_left)
        else:
            ran = state.sweep.run(checks_max, now_ms, written_ms, entries_max=state.owed)
            state.owed -= ran.entries
        if ran.round_ended:
            state.pace.round_ended(now_ms, ran.most_at_once)
            state.rounds_at_this_time += 1
            if state.rounds_at_this_time >= _ROUNDS_WHOLE:
                state.owed = 0
        state.pace.moved(now_ms, state.sweep.progress)
        self._seconds += time.monotonic() - started
        return ran.checks

    def _written_ms(self, now_ms: int) -> int:
        """All that was written before this processing time is in the store."""
        return min(time for time in (now_ms, self._pending_ms, self._unwritten_ms) if time is not None)


def _moved(state: _Paced, now_ms: int) -> None:
    """The clock has moved to ``now_ms``."""
    share = state.pace.start(now_ms)
    if share is not None:
        state.sweep.start_at(share)
        state.opened_ms = now_ms
    state.pace.moved(now_ms, state.sweep.progress)
    state.rounds_at_this_time = 0
