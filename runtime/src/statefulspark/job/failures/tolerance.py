"""Failure tolerance: how many failures of query, slots and checkpoints a job tolerates."""

from __future__ import annotations

import threading
import time

import structlog

from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.slots.replacement import SlotRestarts
from statefulspark.coordinator.slots.state import Slot
from statefulspark.coordinator.snapshots.pending import SlotLostError
from statefulspark.errors import FencedError, InvalidInputError, SlotCrashedError, StatefulSparkError, UnavailableError, UserFunctionError
from statefulspark.job.failures.restarts import RestartStrategy
from statefulspark.job.history.recorder import HistoryRecorder

_log = structlog.get_logger("statefulspark.job")


class FailureTolerance:
    """Told of every failure, says when to try again; called by many threads.

    Attributes:
        fatal: The failure that ends the job, None while it bears what has failed.
        query_failure: A failure that counts as one of the query, although it runs; None when there is none.
    """

    def __init__(self, restart: RestartStrategy, *, restart_user_errors: bool, failed_checkpoints: int, history: HistoryRecorder) -> None:
        """Nothing has failed yet.

        Args:
            restart: what to do when the query, or a slot that has served, fails.
            restart_user_errors: True if ``restart`` holds for errors of the user's function, and for rows that crash their slot, too; otherwise
                they end the job.
            failed_checkpoints: how many checkpoints in a row may fail before the query does.
            history: records every failure and every snapshot.
        """
        self.fatal: StatefulSparkError | None = None
        self.query_failure: StatefulSparkError | None = None
        self._restart = restart
        self._slot_restarts = SlotRestarts(strategy=restart.next_pause_s)
        self._restart_user_errors = restart_user_errors
        self._failed_checkpoints = failed_checkpoints
        self._history = history
        self._failed_in_a_row = 0
        self._restarting = threading.Lock()

    def slot_pause_s(self, slot: Slot, error: StatefulSparkError) -> float | None:
        """A slot's Spark job failed: when it is submitted again. Without an end in sight the job fails."""
        with self._restarting:
            crashed = isinstance(error, SlotCrashedError) and not self._restart_user_errors
            pause_s = self._slot_restarts.next_pause_s(slot, time.monotonic(), crashed=crashed)
        self._history.slot_failed(slot.index, error)
        _log.warning("slot failed", slot=slot.index, pause_s=pause_s, error=str(error)[:300])
        if pause_s is None:
            self.fatal = error
        return pause_s

    def query_pause_s(self, error: StatefulSparkError) -> float | None:
        """The query failed: seconds until it is started again, None when the job fails with it."""
        self._history.query_failed(error)
        final = isinstance(error, InvalidInputError | FencedError) or (
            isinstance(error, UserFunctionError | SlotCrashedError) and not self._restart_user_errors
        )
        with self._restarting:
            return None if final else self._restart.next_pause_s(time.monotonic())

    def checkpoint_ended(self, outcome: CheckpointInfo | StatefulSparkError, savepoint: bool, wanted: SavepointFormat = "native") -> None:
        """Count consecutive failed checkpoints. Exceeding the tolerable number fails the query, and the restart strategy applies.

        This is Flink's ``execution.checkpointing.tolerable-failed-checkpoints``. Neither there nor here do savepoints count, nor
        checkpoints that a lost slot or the end of the job cost.
        """
        self._history.snapshot_ended(outcome, savepoint, wanted)
        if isinstance(outcome, CheckpointInfo):
            self._failed_in_a_row = 0
        elif not savepoint and not isinstance(outcome, SlotLostError | FencedError):
            self._failed_in_a_row += 1
            if self._failed_in_a_row > self._failed_checkpoints:
                text = f"{self._failed_in_a_row} consecutive checkpoints failed ({self._failed_checkpoints} are tolerated); the last one: {outcome}"
                self._failed_in_a_row = 0
                self.query_failure = UnavailableError(text)

    def slot_crashes(self, error: StatefulSparkError) -> None:
        """Handle a slot that died too often at the same rows, as a failure of the query, to which the restart strategy applies."""
        self.query_failure = error

    def take_query_failure(self) -> StatefulSparkError | None:
        """The failure because of which a query that runs must be started again; handed out once."""
        failure, self.query_failure = self.query_failure, None
        return failure
