"""Returning: takes a running job back to its last checkpoint, with the query and the slots that this stops and starts again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import structlog
from pyspark.sql import SparkSession

from statefulspark.coordinator.durable.going_back import GoingBack
from statefulspark.coordinator.slots.job_slots import JobSlots
from statefulspark.errors import UnavailableError
from statefulspark.job.ending.draining import Draining
from statefulspark.job.run.engine import Engine
from statefulspark.job.start.new_slots import new_slots
from statefulspark.job.start.run_settings import RunSettings

_log = structlog.get_logger("statefulspark.job")
_AGAIN_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class Returning:
    """Executes the way back; the running job runs one command at a time.

    Attributes:
        going_back: The coordinator's part.
        slots: Replaced by others of the same number.
        draining: Ended, because rows come again.
    """

    spark: SparkSession
    going_back: GoingBack
    slots: JobSlots
    engine: Engine
    settings: RunSettings
    draining: Draining
    _stopped: bool = False
    _again_s: float = 0.0

    def run(self) -> bool:
        """Stop the query and all slots, go back, and start them again. False if storage does not answer: call again, other commands come first.

        Raises:
            StatefulSparkError: The job cannot go back, which ends it.
        """
        if time.monotonic() < self._again_s:
            return False
        parallelism = self.engine.parallelism
        if not self._stopped:
            self.engine.end_query_and_slots()
            self.draining.went_back()
            self._stopped = True
        try:
            self.going_back.run()
        except UnavailableError as error:
            _log.warning("cannot go back yet", error=str(error)[:300])
            self._again_s = time.monotonic() + _AGAIN_S
            return False
        self._stopped = False
        self.slots.replace(new_slots(self.spark, parallelism, self.settings.slots_per_executor))
        with self.engine.query_settings():
            job, writer = self.engine.build(parallelism)
            self.engine.start_slots(job)
            self.engine.start_query(writer)
        return True
