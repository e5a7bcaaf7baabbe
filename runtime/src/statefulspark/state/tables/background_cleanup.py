"""BackgroundCleanup: paces the cleanup of a step's expired entries.

Cleanup keeps pace with writes: the number of entries it may check grows with the number of entries that batches write. It stops early
if it finds few expired entries, so a state in which nothing expires costs one short scan per batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from statefulspark.state.api.cleanup_strategies import DEFAULT_ENTRIES_PER_ACCESS, CleanupStrategies, chosen_pace, sweeps
from statefulspark.state.tables.sweep import Sweep

_BATCH_ENTRIES_MIN: Final = 1000
"""Minimum number of entries that cleanup may check per batch, unless the pace is configured."""
_OWED_MAX: Final = 1_000_000
"""Bounds the backlog that builds up while a snapshot blocks writes to the store."""


@dataclass(slots=True)
class _Paced:
    sweep: Sweep
    sweeps: bool
    """True if entries are removed while the job runs."""
    full_snapshot: bool
    """True if full snapshots leave expired entries out."""
    entries_min: int
    """Minimum number of entries to check per batch."""
    entries_per_access: int
    """Maximum number of entries to check per access to the state."""
    for_every_record: bool
    """True if each processed row counts as an access."""
    pending: int = 0
    """Entries to check once the finished batch is committed."""
    owed: int = 0
    """Entries to check in the next run."""


class BackgroundCleanup:
    """The sweeps of one backend. Not thread-safe: the caller must be the only writer of the store."""

    __slots__ = ("_now_ms", "_pending_ms", "_states")

    def __init__(self) -> None:
        self._states: dict[str, _Paced] = {}
        self._pending_ms: int | None = None
        self._now_ms: int | None = None

    def add(self, name: str, sweep: Sweep, strategies: CleanupStrategies) -> None:
        """Clean up one more state."""
        chosen = chosen_pace(strategies)
        self._states[name] = _Paced(
            sweep,
            sweeps=sweeps(strategies),
            full_snapshot=strategies.in_full_snapshot(),
            entries_min=_BATCH_ENTRIES_MIN if chosen is None else 0,
            entries_per_access=DEFAULT_ENTRIES_PER_ACCESS if chosen is None else chosen.get_cleanup_size(),
            for_every_record=chosen is not None and chosen.run_cleanup_for_every_record(),
        )

    def finished(self, written: Mapping[str, int], rows: int, processing_time_ms: int) -> None:
        """Record a finished batch.

        Args:
            written: Entries written, by name of the state.
            rows: Rows processed.
            processing_time_ms: Of the batch.
        """
        self._pending_ms = processing_time_ms
        for name, state in self._states.items():
            accesses = written.get(name, 0) + (rows if state.for_every_record else 0)
            state.pending = max(state.entries_min, accesses * state.entries_per_access)

    def undone(self) -> None:
        """Forget the finished batch, which was rolled back."""
        self._pending_ms = None

    def committed(self) -> None:
        """Add the entries of the finished batch, which was committed, to the backlog."""
        if self._pending_ms is None:
            return
        self.reached(self._pending_ms)
        self._pending_ms = None
        for state in self._states.values():
            state.owed = min(_OWED_MAX, state.owed + state.pending)

    def reached(self, processing_time_ms: int) -> None:
        """A batch of this processing time has been committed, here or, for a slot without rows, elsewhere in the job."""
        self._now_ms = max(processing_time_ms, self._now_ms or processing_time_ms)

    def run(self, idle_entries: int = 0) -> bool:
        """Check as many entries as committed batches allow, or ``idle_entries`` per state if that is more.

        Returns:
            True if running again at once is worthwhile.

        Raises:
            UnavailableError: The store cannot be written; run again.
        """
        more = False
        for state in self._states.values():
            if state.sweeps and self._now_ms is not None:
                more |= state.sweep.run(max(state.owed, idle_entries), self._now_ms)
                state.owed = 0
        return more

    def run_for_full_snapshot(self) -> None:
        """Remove all that has expired of states that ask for it; errors as in `run`."""
        if self._now_ms is None:
            return
        for state in list(self._states.values()):
            if state.full_snapshot:
                state.sweep.run_round(self._now_ms)
