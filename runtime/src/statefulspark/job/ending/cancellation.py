"""Decides what becomes of the state of a job that is canceled: ``checkpointing.retention.onCancellation``."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from statefulspark.coordinator.controls import Cancellation
from statefulspark.errors import FencedError, StatefulSparkError

_log = structlog.get_logger("statefulspark.job")


class CanceledState:
    """Keeps the state of a canceled job, or deletes it.

    Args:
        delete: Deletes the job's checkpoints and changelogs, never its savepoints.
        retain: True if the state stays.
    """

    def __init__(self, delete: Callable[[], None], *, retain: bool) -> None:
        self._delete = delete
        self._retain = retain
        self.outcome: Cancellation | None = None
        """None until the job is canceled."""

    @property
    def retained(self) -> bool:
        """True if the state stays when the job is canceled."""
        return self._retain

    def keep(self) -> None:
        """Keep the state, whatever the manifest says."""
        self._retain = True

    def settle(self) -> None:
        """Settle it, before the end of the job is known, because its process ends then. No error keeps the job from ending."""
        self.outcome = Cancellation(deleted=False) if self._retain else self._deleted()

    def _deleted(self) -> Cancellation:
        try:
            self._delete()
        except StatefulSparkError as error:
            reason = "another driver runs the job" if isinstance(error, FencedError) else str(error)[:500]
            _log.warning("the job's state was not deleted", error=reason)
            return Cancellation(deleted=False, problem=reason)
        except Exception as error:  # noqa: BLE001  nobody would learn that the job has ended
            _log.exception("the job's state was not deleted")
            return Cancellation(deleted=False, problem=f"internal error ({type(error).__name__}); see the driver's log")
        return Cancellation(deleted=True)
