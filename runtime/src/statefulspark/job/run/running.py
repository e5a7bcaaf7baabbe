"""RunningJob: a job's query, slots and coordinator, with the commands to inspect, checkpoint, rescale and stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.controls import CheckpointInfo, JobError, JobState, JobStatus, MemoryChange, MemoryStatus, MetricSample
from statefulspark.coordinator.coordinator import Coordinator
from statefulspark.coordinator.history import JobHistory
from statefulspark.coordinator.query.queried_state import StateReads
from statefulspark.coordinator.slots.rescales import RescalePlan
from statefulspark.coordinator.slots.state import READY
from statefulspark.coordinator.waiting import repeat, while_it_moves
from statefulspark.errors import ClosedError, StatefulSparkError, UnavailableError
from statefulspark.exchange.config import SlotConfig
from statefulspark.job.ending.available_now import Finish
from statefulspark.job.ending.cancellation import CanceledState
from statefulspark.job.ending.draining import Draining
from statefulspark.job.ending.until_idle import IDLE_STOP_S, UntilIdle
from statefulspark.job.failures.failing_batches import FailingBatches
from statefulspark.job.failures.restarts import RestartStrategy
from statefulspark.job.failures.tolerance import FailureTolerance
from statefulspark.job.history.recorder import HistoryRecorder
from statefulspark.job.metrics.collection import samples_of
from statefulspark.job.run.commands import Commands
from statefulspark.job.run.engine import Engine, quietly
from statefulspark.job.run.rescaling import Rescaling
from statefulspark.job.run.returning import Returning
from statefulspark.job.run.snapshots import Snapshots
from statefulspark.job.run.statuses import QueryHealth, status_of
from statefulspark.job.spark.checkpoint_location import remove_location
from statefulspark.job.spark.executors import has_executors
from statefulspark.job.spark.jvm import JVM_EXIT_S, jvm_lost
from statefulspark.job.spark.query_failures import query_error, start_error
from statefulspark.job.start.run_settings import RunSettings
from statefulspark.pipeline.job import Job

_log = structlog.get_logger("statefulspark.job")
_POLL_S, _IDLE_POLL_S = 0.1, 1.0
_FENCE_POLL_S = 5.0  # how often an idle driver checks whether a newer one has taken over; a busy one notices it with its next batch


class RunningJob:
    """Implements JobControls. Commands (rescale, stop) run one at a time in the caller's thread. ``failure`` is what ended the job, or None."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        coordinator: Coordinator,
        build: Callable[[int], tuple[Job, DataStreamWriter]],
        slot_config: Callable[[Job], SlotConfig],
        restart: RestartStrategy,
        settings: RunSettings,
        history: HistoryRecorder,
    ) -> None:
        """Hold the parts; ``start`` sets them going.

        Args:
            spark: the session; it is stopped with the job, unless it is the user's (`RunSettings.own_session`).
            coordinator: serving already.
            build: builds the pipeline for a parallelism.
            slot_config: what slots of that pipeline need.
            restart: what to do when the query fails.
            settings: the rest.
            history: records what happens.
        """
        self._spark = spark
        self._coordinator = coordinator
        self.queries: StateReads = coordinator.queries
        self._history = history
        self._tolerance = tolerance = FailureTolerance(
            restart, restart_user_errors=settings.restart_user_errors, failed_checkpoints=settings.tolerable_failures, history=history
        )
        coordinator.report_to(checkpoint_ended=tolerance.checkpoint_ended, slot_crashed=tolerance.slot_crashes, returned=history.returned)
        coordinator.slots.on_restored(history.slot_restored)
        self._engine = Engine(
            spark=spark,
            lifecycle=coordinator.query,
            slots=coordinator.slots,
            build=build,
            slot_config=slot_config,
            next_pause_s=self._slot_failed,
            name=settings.name,
            local_checkpoint=settings.local_checkpoint,
            query_settings=settings.query_settings,
        )
        self._settings = settings
        self._snapshots = Snapshots(coordinator, self._check_open)
        self._rescaling = Rescaling(
            spark=spark,
            lifecycle=coordinator.query,
            slots=coordinator.slots,
            view=coordinator.view,
            engine=self._engine,
            settings=settings,
            checkpoint=lambda timeout_s: self._snapshots.of_command(None, timeout_s),
            check_open=self._check_open,
            enter=self._enter,
            fail=self._fail,
        )
        self._commands = Commands()
        self._closing = threading.Lock()
        self._final: JobState | None = None
        self._state = JobState.CREATED
        self._since_ms = int(time.time() * 1000)
        self.failure: Exception | None = None
        self._error: JobError | None = None
        self._canceled = CanceledState(coordinator.delete_state, retain=settings.retain_on_cancellation)
        self._ended = threading.Event()
        self._restarts = 0
        self._failing = FailingBatches(lambda: coordinator.view().committed)
        self._idle = False
        self._draining = Draining(coordinator.query, when_idle=settings.drain_when_idle, check_open=self._check_open)
        self._checked_s = 0.0
        self._failed_query: StreamingQuery | None = None
        self._restart_s = 0.0
        self._returning = Returning(
            spark=spark, going_back=coordinator.going_back, slots=coordinator.slots, engine=self._engine, settings=settings,
            draining=self._draining,
        )  # fmt: skip
        self._until_idle = UntilIdle(ended=self._ended, query=self._batches_of, idle=coordinator.query.idle)
        self._finish = Finish(self._stop_done, self._fail)

    def start(self, job: Job, writer: DataStreamWriter) -> None:
        """Start slots and query; what was started ends when one of them cannot be.

        Raises:
            StatefulSparkError: Why.
        """
        try:
            self._engine.start_slots(job)
            self._engine.start_query(writer)
        except Exception as error:
            self._close(JobState.FAILED)
            raise start_error(error) from error
        self._enter(JobState.RUNNING)
        self._history.start(self._coordinator.view, self.status)
        threading.Thread(target=self._watch, name="job-watch", daemon=True).start()
        repeat("job-fence", self._coordinator.check_fence, every_s=_FENCE_POLL_S, until=self._ended)
        if self._settings.until_idle:
            self._until_idle.begin(self._stop_idle, self._fail)

    def _enter(self, state: JobState) -> None:
        if state != self._state:
            self._state = state
            self._since_ms = int(time.time() * 1000)
            _log.info("job state", state=state.value)

    def _watch(self) -> None:
        """Until the end: checkpoints of an idle query, and what to do when the query, a slot or the JVM fails."""
        while not self._ended.wait(_POLL_S):
            try:
                failure = jvm_lost(self._spark) or self._watch_once()
            except Exception as error:  # noqa: BLE001  Py4J raises many kinds, and a watch that ends leaves a job that only seems to run
                failure = jvm_lost(self._spark, within_s=JVM_EXIT_S)
                _log.warning("monitoring the job failed", error=str(error)[:300])
            if failure is not None and self._final is None:
                self._fail(failure)
                return

    def _watch_once(self) -> StatefulSparkError | None:
        """Return what ends the job, None while nothing does."""
        change_query = False
        try:
            change_query = self._coordinator.poll()
        except StatefulSparkError as error:
            _log.warning("polling the query failed", error=str(error)[:300])
        if self._state is not JobState.RUNNING or self._final is not None:
            return None
        if (failure := self._tolerance.fatal or self._coordinator.fatal) is not None:
            return failure
        query = self._engine.query
        if change_query and query is not None and query is not self._failed_query:
            self._replace(query)
        self._check_idle()
        if self._coordinator.going_back.wanted and not self._tolerance.query_failure:
            return self._go_back()
        if query is not None and query is not self._failed_query:
            failed = self._tolerance.query_failure is not None
            if self._engine.is_over(query, self._is_steady, end=failed):
                self._query_ended(query)
        elif query is not None and time.monotonic() >= self._restart_s:
            self._failed_query = None
            self._replace(query)
        return None

    def _is_steady(self) -> bool:
        """True if no command has begun to end the query; one that waits for its batch needs it."""
        return self._state is JobState.RUNNING and self._final is None

    def _go_back(self) -> StatefulSparkError | None:
        """Go back to the last checkpoint, because slots have lost what is stored nowhere. A command that runs must fail first."""
        with self._commands.if_free("the way back to the last checkpoint") as free:
            if free and self._final is None:
                try:
                    self._restarts += self._returning.run()
                except StatefulSparkError as error:
                    return error
        return None

    def _slot_failed(self, index: int, error: StatefulSparkError) -> float | None:
        """See `SlotSupervisors`. A slot that served is a machine's matter until it fails to start again."""
        slot = self._coordinator.view().slots[index]
        if slot.state != READY:
            self._failing.failed(error)
        return self._tolerance.slot_pause_s(slot, error)

    def _check_idle(self) -> None:
        """Note, once a second, whether the query waits for rows; one that has waited since it began has no batch to repeat."""
        if time.monotonic() - self._checked_s <= _IDLE_POLL_S:
            return
        self._checked_s = time.monotonic()
        self._idle = self._coordinator.query.idle() and self._engine.has_waited()
        if self._idle:
            self._failing.idle()

    def _replace(self, query: StreamingQuery) -> None:
        """Start another query in the place of ``query``: the dry run of a batch, or the real one."""
        try:
            self._engine.replace_query(query, self._is_steady)
        except Exception as problem:  # noqa: BLE001  Py4J raises many kinds, and a watch that ends leaves a job that only seems to run
            self._tolerance.fatal = UnavailableError(f"the query could not be restarted: {problem}")

    def _query_ended(self, query: StreamingQuery) -> None:
        """The query ended or failed, or counts as failed because its checkpoints did. No command waits for the pause that may follow."""
        error = self._tolerance.take_query_failure()
        if error is None:
            if (failure := query.exception()) is None:
                if self._draining.query_must_run_again():
                    self._replace(query)
                else:
                    self._finish.begin(query, lambda: self._engine.query)
                return
            error = query_error(failure)
        self._failing.failed(error)
        pause_s = self._tolerance.query_pause_s(error)
        if pause_s is None:
            self._fail(error)
            return
        _log.warning("query failed, restarting", pause_s=pause_s, error=str(error)[:500])
        self._restarts += 1
        self._failed_query, self._restart_s = query, time.monotonic() + pause_s

    def _fail(self, error: Exception) -> None:
        self.failure = jvm_lost(self._spark, within_s=JVM_EXIT_S) or error
        self._error = JobError.of(self.failure)
        _log.error("job failed", reason=self._error.reason)
        self._close(JobState.FAILED)

    def _stop_idle(self) -> None:
        if self._settings.drain_when_idle:
            self._draining.drain()
        self._stop_done()

    def _stop_done(self) -> None:
        """Stop a job that has nothing left to do, however long its last checkpoint takes."""
        while_it_moves(
            lambda: self._stop(to=None, timeout_s=IDLE_STOP_S, final=JobState.FINISHED), lambda: self._coordinator.view().position
        )

    def wait_until_idle(self) -> bool:
        """Wait until the sources have nothing more and no timer is due; False if the job has ended before."""
        return self._until_idle.wait()

    def _batches_of(self) -> StreamingQuery | None:
        """The query if batches may run now, else None (restart, rescale)."""
        ready = self._state is JobState.RUNNING and self._final is None and not self._coordinator.going_back.wanted
        return self._engine.query if ready else None

    def _close(self, state: JobState) -> None:
        """End everything; the last step of every way to end. The first caller decides how the job ended."""
        with self._closing:
            if self._final is not None:
                return
            self._final = state
        quietly(self._engine.end_query_and_slots)
        self._coordinator.close()
        self._history.close(state, self._error, keep=state is not JobState.CANCELED or self._canceled.retained)
        if self._settings.own_session:
            quietly(self._spark.stop)
        remove_location(Path(self._settings.local_checkpoint))
        if state is JobState.CANCELED:
            self._canceled.settle()
        self._enter(state)
        self._ended.set()

    def _check_open(self) -> None:
        if self._ended.is_set() or self._state.final:
            raise ClosedError(f"the job has ended ({self._state.value})")

    def status(self) -> JobStatus:
        """See JobControls."""
        return status_of(
            self._coordinator.view(),
            name=self._settings.name,
            max_parallelism=self._settings.max_parallelism,
            state=self._state,
            since_ms=self._since_ms,
            error=self._error,
            canceled=self._canceled.outcome,
            ended=self._ended.is_set(),
            query=QueryHealth(
                restarts=self._restarts,
                failing=self._failing.present(),
                idle=self._idle,
                progress=self._engine.last_progress.read(),
                last_rescale=self._rescaling.last,
            ),
        )

    def checkpoints(self) -> list[CheckpointInfo]:
        """See JobControls."""
        return list(self._coordinator.view().checkpoints)

    def trigger_checkpoint(self, timeout_s: float) -> CheckpointInfo:
        """See JobControls."""
        return self._snapshots.checkpoint(timeout_s)

    def trigger_savepoint(self, target: str | None, timeout_s: float, form: SavepointFormat = "native") -> CheckpointInfo:
        """See JobControls."""
        return self._snapshots.savepoint(target, timeout_s, form)

    def stop(
        self, *, savepoint: bool | None, target: str | None, drain: bool, timeout_s: float, form: SavepointFormat | None = None
    ) -> CheckpointInfo | None:
        """See JobControls."""
        to = self._snapshots.target_of_last(savepoint=savepoint, target=target, form=form)
        if drain:
            self._draining.drain(timeout_s)
        return self._stop(to=to, timeout_s=timeout_s, final=JobState.FINISHED if drain else JobState.SUSPENDED, form=form)

    def _stop(self, *, to: str | None, timeout_s: float, final: JobState, form: SavepointFormat | None = None) -> CheckpointInfo | None:
        with self._commands.alone("a stop"):
            self._check_open()
            info = self._snapshots.last(
                to, timeout_s, form, gives_up=lambda: final is JobState.SUSPENDED and to is None and self._cannot_finish_batch()
            )
            self._close(final)
            return info

    def _cannot_finish_batch(self) -> bool:
        """True if a stop would wait for a batch that fails: storage has what the next driver resumes from."""
        return self._failing.present() is not None or bool(self._coordinator.going_back.wanted)

    def cancel(self, *, retain: bool = False) -> None:
        """See JobControls."""
        if self._ended.is_set():
            return
        with self._commands.in_turn("a cancel"):
            if retain:
                self._canceled.keep()
            self._close(JobState.CANCELED)

    def rescale(self, parallelism: int, timeout_s: float) -> JobStatus:
        """See JobControls."""
        self._check_open()
        self._settings.check_parallelism(parallelism)
        with self._commands.alone("a rescale"):
            replaced = self._rescaling.run(parallelism, timeout_s) if parallelism != self._engine.parallelism else None
        self._rescaling.finish(replaced, timeout_s, self._check_open)
        return self.status()

    def rescale_plan(self, parallelism: int) -> RescalePlan:
        """See JobControls."""
        self._check_open()
        return self._rescaling.plan(parallelism)

    def recent_progress(self) -> list[dict[str, Any]]:
        """Spark's progress of the last batches: ``batch``, ``rows`` of all sources, ``ms`` of the whole trigger."""
        return [] if self._ended.is_set() else self._engine.recent_progress()

    def history(self) -> JobHistory:
        """See JobControls."""
        return self._history.history()

    def metrics(self) -> list[MetricSample]:
        """See JobControls."""
        return samples_of(
            self._settings.name,
            self._coordinator.view(),
            restarts=self._restarts,
            progress=self._engine.last_progress.read(),
            native_metrics=self._settings.native_metrics,
        )

    def memory(self) -> MemoryStatus:
        """See JobControls."""
        return self._coordinator.memory.status()

    def tune_memory(self, change: MemoryChange, timeout_s: float) -> MemoryStatus:
        """See JobControls."""
        self._check_open()
        return self._coordinator.memory.tune(change, timeout_s, self._check_open)

    def silence_s(self) -> float:
        """See JobControls."""
        return self._coordinator.view().silence_s

    def has_executors(self) -> bool:
        """See JobControls."""
        return has_executors(self._spark)

    def wait(self, timeout_s: float | None) -> JobState:
        """See JobControls."""
        self._ended.wait(timeout_s)
        return self._state
