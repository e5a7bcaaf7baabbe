"""Changes the parallelism of a running job: takes a checkpoint, stops query and slots, and starts them with another number of slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from pyspark.sql import SparkSession

from statefulspark.coordinator.controls import JobState
from statefulspark.coordinator.job_slots import JobSlots
from statefulspark.coordinator.query_lifecycle import QueryLifecycle
from statefulspark.coordinator.slot_notices import SlotNotices
from statefulspark.coordinator.slot_table import SlotTable
from statefulspark.coordinator.view import CoordinatorView
from statefulspark.errors import StatefulSparkError
from statefulspark.job.engine import Engine
from statefulspark.job.run_settings import RunSettings
from statefulspark.job.spark.executors import EXECUTORS_TIMEOUT_S, executor_counter, grow_executors, resize_executors
from statefulspark.job.spark.session import quiet

_log = structlog.get_logger("statefulspark.job")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaling:
    """Executes rescales; the running job runs one command at a time.

    Attributes:
        lifecycle: Pauses the query while slots are replaced.
        slots: Replaced by others.
        view: Returns what the coordinator knows now.
        checkpoint: Takes a checkpoint within so many seconds.
        enter: Sets the job's state.
        fail: Ends the job.
    """

    spark: SparkSession
    lifecycle: QueryLifecycle
    slots: JobSlots
    view: Callable[[], CoordinatorView]
    engine: Engine
    settings: RunSettings
    checkpoint: Callable[[float], object]
    enter: Callable[[JobState], None]
    fail: Callable[[Exception], None]

    def run(self, parallelism: int, timeout_s: float) -> None:
        """Change the number of slots to ``parallelism``; if that fails, the job continues with its previous parallelism.

        Raises:
            StatefulSparkError: The job was not rescaled.
        """
        # What takes long comes first, while batches still run: new executors start, most of the state goes up.
        grow_executors(self.spark, self.settings.executors_for(parallelism), min(timeout_s, EXECUTORS_TIMEOUT_S))
        self.checkpoint(timeout_s)
        self.lifecycle.pause(timeout_s)
        try:
            view = self.view()
            if view.committed > view.base:
                self.checkpoint(timeout_s)
        except StatefulSparkError:
            self.lifecycle.resume()
            raise
        before = self.engine.parallelism
        self.enter(JobState.RESCALING)
        self._end()
        try:
            self._start_with(parallelism)
        except Exception as error:
            # A job without slots would be worse than one that is not rescaled.
            _log.exception("rescale failed, continuing with the previous parallelism", parallelism=before)
            self._go_on_with(before, error)
            raise

    def _end(self) -> None:
        self.engine.end_query_and_slots()

    def _go_on_with(self, parallelism: int, error: Exception) -> None:
        try:
            self._end()
            self._start_with(parallelism)
        except Exception:
            self.fail(error)
            raise

    def _start_with(self, parallelism: int) -> None:
        """Start slots and query, of which none run, with ``parallelism``."""
        with quiet(self.spark):
            resize_executors(self.spark, self.settings.executors_for(parallelism))
        slots = SlotTable(
            parallelism, slots_per_executor=self.settings.slots_per_executor, executors=executor_counter(self.spark), notices=SlotNotices()
        )
        self.slots.replace(slots)
        job, writer = self.engine.build(parallelism)
        self.engine.start_slots(job)
        self.lifecycle.resume()
        self.engine.start_query(writer)
        self.enter(JobState.RUNNING)
