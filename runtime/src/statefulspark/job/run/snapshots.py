"""Snapshots: the checkpoints and savepoints that commands of a running job ask for, and the last one of a job that stops."""

from __future__ import annotations

from collections.abc import Callable

from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.coordinator import Coordinator
from statefulspark.errors import InvalidInputError, StatefulSparkError


class _GivenUpError(Exception):
    """The batch that a stop waits for is not worth it."""


class Snapshots:
    """Takes them.

    Args:
        coordinator: Of the job.
        check_open: Raises ClosedError if the job has ended.
    """

    def __init__(self, coordinator: Coordinator, check_open: Callable[[], None]) -> None:
        self._coordinator = coordinator
        self._check_open = check_open

    def checkpoint(self, timeout_s: float) -> CheckpointInfo:
        """See JobControls."""
        return self._coordinator.snapshots.take(None, timeout_s, self._check_open)

    def savepoint(self, target: str | None, timeout_s: float, form: SavepointFormat = "native") -> CheckpointInfo:
        """See JobControls."""
        where = self._coordinator.snapshots.savepoint_target(target)
        take = self._coordinator.canonical.take if form == "canonical" else self._coordinator.snapshots.take
        return take(where, timeout_s, self._check_open)

    def of_command(self, savepoint: str | None, timeout_s: float) -> CheckpointInfo:
        """Take a snapshot for a command during which the job cannot go back to its last checkpoint.

        Raises:
            ConflictError: The job must go back first.
            StatefulSparkError: The snapshot failed.
        """
        return self._coordinator.snapshots.take(savepoint, timeout_s, self._check_steady)

    def target_of_last(self, *, savepoint: bool | None, target: str | None, form: SavepointFormat | None) -> str | None:
        """Return the URL below which the savepoint of a stop goes, None if it takes a checkpoint; arguments as in `JobControls.stop`.

        Raises:
            ClosedError: The job has ended.
            InvalidInputError: There is no directory for the savepoint, or a format without one.
        """
        self._check_open()
        wanted = target is not None or self._coordinator.view().has_savepoint_dir if savepoint is None else savepoint
        if wanted:
            return self._coordinator.snapshots.savepoint_target(target)
        if form is not None:
            raise InvalidInputError(
                "only a savepoint has a format",
                field="format",
                remedy="Stop with a savepoint: give a target, or set checkpointing.savepointDir",
            )
        return None

    def last(
        self, savepoint: str | None, timeout_s: float, form: SavepointFormat | None = None, *, gives_up: Callable[[], bool] = lambda: False
    ) -> CheckpointInfo | None:
        """Let no further batch begin, and take the snapshot with which the job stops; None before the first batch. If it fails, batches go on.

        Args:
            savepoint: URL below which a savepoint goes; None for a checkpoint.
            timeout_s: For all of it.
            form: Of the savepoint.
            gives_up: Returns True if the running batch is not worth waiting for; then no snapshot is taken.
        """
        coordinator = self._coordinator

        def check() -> None:
            self._check_open()
            if gives_up():
                raise _GivenUpError

        try:
            check()
            coordinator.query.pause(timeout_s, check)
        except _GivenUpError:
            return None
        if coordinator.view().committed < 0:
            return None
        try:
            if savepoint is not None and coordinator.needs_checkpoint():
                # A driver that continues without the savepoint would go back to an earlier checkpoint.
                self.of_command(None, timeout_s)
            if savepoint is not None and form == "canonical":
                return coordinator.canonical.take(savepoint, timeout_s, self._check_steady)
            return self.of_command(savepoint, timeout_s)
        except StatefulSparkError:
            coordinator.query.resume()
            raise

    def _check_steady(self) -> None:
        self._check_open()
        self._coordinator.going_back.wanted.refuse()
