"""Slots that cannot restore: the job falls back to the checkpoint before a damaged one, anything else ends it."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.returns import Told, passed_over
from statefulspark.errors import CorruptDataError, StatefulSparkError, UnavailableError

_log = structlog.get_logger("statefulspark.coordinator")


class RestoreFailures:
    """Decides what follows when a slot cannot restore; the caller guards it with the batch lock.

    Args:
        durable: The job's folder in storage.
        batches: The job's batches.
        fail: Ends the job with an error.
        told: Told of each checkpoint that is skipped because it is damaged.
    """

    def __init__(self, durable: DurableJob, batches: BatchLog, fail: Callable[[StatefulSparkError], None], told: Told) -> None:
        self._durable = durable
        self._batches = batches
        self._fail = fail
        self._told = told

    def try_again(self, error: StatefulSparkError, base: str | None) -> bool:
        """True if the slot must restore again, from another checkpoint or when storage answers.

        Args:
            error: What the slot has reported.
            base: URL of the checkpoint that it restored from.
        """
        if isinstance(error, CorruptDataError):
            # Another slot may have reported the same checkpoint before.
            return base != self._durable.base_url or self._fell_back(error)
        self._fail(error)
        return False

    def _fell_back(self, error: CorruptDataError) -> bool:
        damaged = self._durable.base_url
        try:
            self._durable.fall_back(error, self._batches)
        except UnavailableError as later:
            _log.info("storage does not respond; the slot retries the restore", error=str(later)[:200])
            return True
        except StatefulSparkError as final:
            self._fail(final)
            return False
        self._told(passed_over(damaged, self._durable.base_url, error), error)
        _log.warning("ignoring a damaged checkpoint", damaged=damaged, problem=str(error)[:300], base=self._durable.base_url)
        return True
