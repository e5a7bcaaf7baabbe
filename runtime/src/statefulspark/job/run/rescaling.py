"""Changes the parallelism of a running job: takes a checkpoint, stops query and slots, and starts them with another number of slots."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from pyspark.sql import SparkSession

from statefulspark.coordinator.controls import JobState
from statefulspark.coordinator.query.lifecycle import QueryLifecycle
from statefulspark.coordinator.slots.job_slots import JobSlots
from statefulspark.coordinator.slots.rescale_planning import plan_rescale
from statefulspark.coordinator.slots.rescales import Rescale, RescalePlan
from statefulspark.coordinator.view import CoordinatorView
from statefulspark.coordinator.waiting import wait_for
from statefulspark.errors import StatefulSparkError, UnavailableError
from statefulspark.job.run.engine import Engine
from statefulspark.job.spark.executors import EXECUTORS_TIMEOUT_S, grow_executors, resize_executors
from statefulspark.job.spark.session import quiet
from statefulspark.job.start.new_slots import new_slots
from statefulspark.job.start.run_settings import RunSettings

_log = structlog.get_logger("statefulspark.job")

_FIRST_BATCH_S: Final = 60.0
"""For how long an answer waits for the first batch of the new slots, to tell how long the pause was."""
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Replaced:
    """The new slots are starting."""

    plan: RescalePlan
    paused_s: float
    """Monotonic time since when no batch runs."""
    committed: int
    """The last batch before."""


@dataclass(slots=True, kw_only=True)
class Rescaling:
    """Executes rescales; the running job runs one command at a time.

    Attributes:
        lifecycle: Pauses the query while slots are replaced.
        slots: Replaced by others.
        view: Returns what the coordinator knows now.
        checkpoint: Takes a checkpoint within so many seconds.
        check_open: Raises an error if the job has ended.
        enter: Sets the job's state.
        fail: Ends the job.
        last: What the last rescale of this driver did.
    """

    spark: SparkSession
    lifecycle: QueryLifecycle
    slots: JobSlots
    view: Callable[[], CoordinatorView]
    engine: Engine
    settings: RunSettings
    checkpoint: Callable[[float], object]
    check_open: Callable[[], None]
    enter: Callable[[JobState], None]
    fail: Callable[[Exception], None]
    last: Rescale | None = None

    def plan(self, parallelism: int) -> RescalePlan:
        """Return what a rescale would do, as of the last checkpoint.

        Raises:
            InvalidInputError: The job cannot be rescaled to this number of slots.
        """
        self.settings.check_parallelism(parallelism)
        return plan_rescale(self.view().base_checkpoint, self.settings.max_parallelism, self.engine.parallelism, parallelism)

    def run(self, parallelism: int, timeout_s: float) -> Replaced:
        """Change the number of slots to ``parallelism``; if that fails, the job continues with its previous parallelism.

        Returns:
            What `finish` waits for, once other commands may run.

        Raises:
            StatefulSparkError: The job was not rescaled.
        """
        # What takes long comes first, while batches still run: new executors start, most of the state goes up.
        grow_executors(self.spark, self.settings.executors_for(parallelism), min(timeout_s, EXECUTORS_TIMEOUT_S))
        self.checkpoint(timeout_s)
        self.lifecycle.pause(timeout_s, self.check_open)
        paused_s = time.monotonic()
        try:
            view = self.view()
            if view.committed > view.base:
                self.checkpoint(timeout_s)
            plan = self.plan(parallelism)
        except StatefulSparkError:
            self.lifecycle.resume()
            raise
        before = self.engine.parallelism
        _log.info(
            "rescaling", before=before, parallelism=parallelism, moved_key_groups=plan.moved_key_groups, fetch_bytes=plan.fetch_bytes,
            cut_bytes=plan.cut_bytes, merged_bytes=plan.merged_bytes,
        )  # fmt: skip
        self.enter(JobState.RESCALING)
        self._end()
        try:
            self._start_with(parallelism)
        except Exception as error:
            # A job without slots would be worse than one that is not rescaled.
            _log.exception("rescale failed, continuing with the previous parallelism", parallelism=before)
            self._go_on_with(before, error)
            raise
        return Replaced(plan, paused_s, view.committed)

    def finish(self, replaced: Replaced | None, timeout_s: float, check_open: Callable[[], None]) -> None:
        """Wait until all slots serve, then until their first batch is committed, and note how long the job was paused.

        Args:
            replaced: What `run` has returned; None if the parallelism stayed, so that there is no pause to measure.
            timeout_s: For how long the slots may take.
            check_open: Raises an error if the job has ended.

        Raises:
            UnavailableError: The slots were not ready in time; they are still starting.
        """
        late = f"the slots were not ready within {timeout_s:.0f} s; they are still starting"
        try:
            wait_for(lambda: self.view().all_ready, timeout_s, check_open=check_open, late=lambda: late)
        except UnavailableError:
            self._note(replaced, None)
            raise
        if replaced is not None:
            self._note(replaced, self._pause_ended_s(replaced, check_open))

    def _pause_ended_s(self, replaced: Replaced, check_open: Callable[[], None]) -> float | None:
        ready_s = time.monotonic()
        while time.monotonic() < ready_s + _FIRST_BATCH_S:
            check_open()
            idle = self.lifecycle.idle()
            if self.view().committed > replaced.committed:
                return time.monotonic()
            if idle and self.engine.has_waited():
                return ready_s  # there are no rows for a batch
            time.sleep(_POLL_S)
        return None

    def _note(self, replaced: Replaced | None, ended_s: float | None) -> None:
        if replaced is None or self.engine.parallelism != replaced.plan.to_parallelism:
            return  # rescaled again meanwhile
        pause_ms = int((ended_s - replaced.paused_s) * 1000) if ended_s is not None else None
        self.last = Rescale.of(replaced.plan, completed_ms=int(time.time() * 1000), pause_ms=pause_ms)
        _log.info("rescaled", before=replaced.plan.from_parallelism, parallelism=replaced.plan.to_parallelism, pause_ms=pause_ms)

    def _end(self) -> None:
        self.engine.end_query_and_slots(keep_files=True)

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
        self.slots.replace(new_slots(self.spark, parallelism, self.settings.slots_per_executor))
        job, writer = self.engine.build(parallelism)
        self.engine.start_slots(job)
        self.lifecycle.resume()
        self.engine.start_query(writer)
        self.enter(JobState.RUNNING)
