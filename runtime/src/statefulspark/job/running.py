"""A running job: its query, slots and coordinator as one thing that can be looked at, checkpointed, rescaled and stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.errors import ClosedError, ConflictError, StatefulSparkError, UnavailableError
from statefulspark.exchange.config import SlotConfig
from statefulspark.job.controls import CheckpointInfo, JobError, JobState, JobStatus, MemoryChange, MemoryStatus, MetricSample
from statefulspark.job.coordinator import Coordinator
from statefulspark.job.engine import Engine, quietly
from statefulspark.job.executors import EXECUTORS_TIMEOUT_S, executor_counter, grow_executors, resize_executors
from statefulspark.job.failures import query_error
from statefulspark.job.job import Job
from statefulspark.job.restarts import RestartStrategy
from statefulspark.job.run_settings import RunSettings
from statefulspark.job.samples import samples_of
from statefulspark.job.session import quiet
from statefulspark.job.slots import SlotTable
from statefulspark.job.statuses import status_of
from statefulspark.job.tolerance import FailureTolerance
from statefulspark.job.tuning import waits_for

_log = structlog.get_logger("statefulspark.job")
_POLL_S = 0.1
_FENCE_POLL_S = 5.0
"""An idle driver looks this often whether a newer one has taken over; a busy one learns it from its next batch."""


class RunningJob:
    """Implements JobControls. Commands (rescale, stop) run one at a time in the caller's thread."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        coordinator: Coordinator,
        build: Callable[[int], tuple[Job, DataStreamWriter]],
        slot_config: Callable[[Job], SlotConfig],
        restart: RestartStrategy,
        settings: RunSettings,
    ) -> None:
        """Hold the parts; ``start`` sets them going.

        Args:
            spark: the session; it is stopped with the job.
            coordinator: serving already.
            build: builds the pipeline for a parallelism.
            slot_config: what slots of that pipeline need.
            restart: what to do when the query fails.
            settings: the rest.
        """
        self._spark = spark
        self._coordinator = coordinator
        self._tolerance = FailureTolerance(
            restart, restart_user_errors=settings.restart_user_errors, failed_checkpoints=settings.tolerable_failures
        )
        coordinator.checkpoints.on_checkpoint(self._tolerance.checkpoint_ended)
        self._engine = Engine(
            spark=spark,
            coordinator=coordinator,
            build=build,
            slot_config=slot_config,
            next_pause_s=lambda index, error: self._tolerance.slot_pause_s(coordinator.slots.get(index), error),
            name=settings.name,
            local_checkpoint=settings.local_checkpoint,
        )
        self._settings = settings
        self._commands = threading.Lock()
        self._closing = threading.Lock()
        self._final: JobState | None = None
        self._state = JobState.CREATED
        self._since_ms = int(time.time() * 1000)
        self._error: JobError | None = None
        self._ended = threading.Event()
        self._restarts = 0

    # -- life ------------------------------------------------------------------------------------------------------------

    def start(self, job: Job, writer: DataStreamWriter) -> None:
        """Start slots and query."""
        self._engine.start_slots(job)
        self._engine.start_query(writer)
        self._enter(JobState.RUNNING)
        threading.Thread(target=self._watch, name="job-watch", daemon=True).start()
        threading.Thread(target=self._watch_fence, name="job-fence", daemon=True).start()
        if self._settings.until_idle:
            threading.Thread(target=self._finish_when_idle, name="job-until-idle", daemon=True).start()

    def _enter(self, state: JobState) -> None:
        if state != self._state:
            self._state = state
            self._since_ms = int(time.time() * 1000)
            _log.info("job state", state=state.value)

    def _watch(self) -> None:
        """Until the end: checkpoints of an idle query, and what to do when the query or a slot fails."""
        while not self._ended.is_set():
            time.sleep(_POLL_S)
            try:
                self._coordinator.poll()
            except StatefulSparkError as error:
                _log.warning("poll failed", error=str(error)[:300])
            if self._state is not JobState.RUNNING or self._final is not None:
                continue
            failure = self._tolerance.fatal or self._coordinator.fatal
            if failure is not None:
                self._fail(failure)
                return
            if self._coordinator.dry_runs.due():
                self._change_query()
            query = self._engine.query
            failing = self._tolerance.query_failure is not None
            if query is not None and (failing or not query.isActive) and self._commands.acquire(blocking=False):
                try:
                    if query is self._engine.query and self._final is None:
                        self._query_ended(query)
                finally:
                    self._commands.release()

    def _change_query(self) -> None:
        """Go over to the dry run of a batch, or from it to the real query."""
        try:
            self._engine.change_query(lambda: self._final is not None)
        except StatefulSparkError as error:
            self._tolerance.fatal = error

    def _watch_fence(self) -> None:
        """In a thread of its own: storage that does not answer must not hold up the watch."""
        while not self._ended.wait(_FENCE_POLL_S):
            self._coordinator.check_fence()

    def _query_ended(self, query: StreamingQuery) -> None:
        """The query ended or failed, or runs and counts as failed because its checkpoints did."""
        error = self._tolerance.take_query_failure()
        if error is None:
            failure = query.exception()
            if failure is None:
                self._close(JobState.FINISHED)
                return
            error = query_error(failure)
        pause_s = self._tolerance.query_pause_s(error)
        if pause_s is None:
            self._fail(error)
            return
        _log.warning("query failed and is started again", pause_s=pause_s, error=str(error)[:500])
        self._restarts += 1
        self._engine.end_query()
        self._ended.wait(pause_s)
        try:
            self._engine.start_query_again()
        except Exception as problem:  # noqa: BLE001  Py4J raises many kinds, and a watch that ends leaves a job that only seems to run
            self._tolerance.fatal = UnavailableError(f"the query could not be started again: {problem}")

    def _fail(self, error: Exception) -> None:
        self._error = JobError.of(error)
        _log.error("job failed", reason=self._error.reason)
        self._close(JobState.FAILED)

    def _finish_when_idle(self) -> None:
        """Stop with a checkpoint when the sources have nothing more and no timer is due."""
        while not self._ended.is_set():
            query = self._engine.query
            if query is None or self._state is not JobState.RUNNING:
                time.sleep(_POLL_S)
                continue
            try:
                query.processAllAvailable()
            except Exception:  # noqa: BLE001  the watch thread deals with failures
                time.sleep(_POLL_S)
                continue
            if query is self._engine.query and query.isActive and self._final is None and self._coordinator.idle():
                try:
                    self._stop(savepoint=None, timeout_s=600.0, final=JobState.FINISHED)
                except ConflictError:
                    continue
                except ClosedError:
                    return
                except StatefulSparkError as error:
                    self._fail(error)
                return

    def _close(self, state: JobState) -> None:
        """End everything; the last step of every way to end. The first caller decides how the job ended."""
        with self._closing:
            if self._final is not None:
                return
            self._final = state
        quietly(self._end)
        self._coordinator.close()
        quietly(self._spark.stop)
        self._enter(state)
        self._ended.set()

    def _end(self) -> None:
        with quiet(self._spark):
            self._engine.end_query_and_slots()

    # -- controls --------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._ended.is_set() or self._state.final:
            raise ClosedError(f"the job has ended ({self._state.value})")

    def status(self) -> JobStatus:
        """See JobControls."""
        return status_of(
            self._coordinator,
            name=self._settings.name,
            max_parallelism=self._settings.max_parallelism,
            state=self._state,
            since_ms=self._since_ms,
            error=self._error,
            ended=self._ended.is_set(),
            restarts=self._restarts,
        )

    def checkpoints(self) -> list[CheckpointInfo]:
        """See JobControls."""
        return self._coordinator.durable.completed()

    def trigger_checkpoint(self, timeout_s: float) -> CheckpointInfo:
        """See JobControls."""
        return self._snapshot(None, timeout_s)

    def trigger_savepoint(self, target: str | None, timeout_s: float) -> CheckpointInfo:
        """See JobControls."""
        return self._snapshot(self._coordinator.durable.savepoint_target(target), timeout_s)

    def _snapshot(self, savepoint: str | None, timeout_s: float) -> CheckpointInfo:
        return self._coordinator.checkpoints.take(savepoint, timeout_s, self._check_open)

    def stop(self, *, savepoint: bool, target: str | None, drain: bool, timeout_s: float) -> CheckpointInfo | None:
        """See JobControls."""
        self._check_open()
        where = self._coordinator.durable.savepoint_target(target) if savepoint else None
        if drain:
            self._drain(timeout_s)
        return self._stop(savepoint=where, timeout_s=timeout_s, final=JobState.FINISHED if drain else JobState.SUSPENDED)

    def _drain(self, timeout_s: float) -> None:
        """Let every event-time timer fire: a batch with the greatest watermark."""
        self._coordinator.drain = True
        deadline = time.monotonic() + timeout_s
        while not self._coordinator.idle():
            if time.monotonic() > deadline:
                self._coordinator.drain = False
                raise UnavailableError(f"the job was not drained within {timeout_s:.0f} s and runs on")
            time.sleep(0.05)

    def _stop(self, *, savepoint: str | None, timeout_s: float, final: JobState) -> CheckpointInfo | None:
        if not self._commands.acquire(blocking=False):
            raise ConflictError("another rescale or stop is under way")
        try:
            self._check_open()
            self._coordinator.pause(timeout_s)
            info: CheckpointInfo | None = None
            if self._coordinator.batches.committed >= 0:
                try:
                    info = self._snapshot(savepoint, timeout_s)
                except StatefulSparkError:
                    self._coordinator.resume()
                    raise
            self._close(final)
            return info
        finally:
            self._commands.release()

    def cancel(self) -> None:
        """See JobControls."""
        if self._ended.is_set():
            return
        with self._commands:
            self._close(JobState.CANCELED)
            if not self._settings.retain_on_cancellation:
                self._coordinator.durable.delete_checkpoints()

    def rescale(self, parallelism: int, timeout_s: float) -> JobStatus:
        """See JobControls."""
        self._check_open()
        self._settings.check_parallelism(parallelism)
        if not self._commands.acquire(blocking=False):
            raise ConflictError("another rescale or stop is under way")
        try:
            if parallelism != self._engine.parallelism:
                self._rescale(parallelism, timeout_s)
        finally:
            self._commands.release()
        self._await_ready(timeout_s)
        return self.status()

    def _rescale(self, parallelism: int, timeout_s: float) -> None:
        """Checkpoint, stop query and slots, and start them with another parallelism."""
        coordinator = self._coordinator
        # What takes long comes first, while batches still run: new executors start, most of the state goes up.
        grow_executors(self._spark, self._settings.executors_for(parallelism), min(timeout_s, EXECUTORS_TIMEOUT_S))
        self._snapshot(None, timeout_s)
        coordinator.pause(timeout_s)
        try:
            if coordinator.batches.committed > coordinator.batches.base:
                self._snapshot(None, timeout_s)
        except StatefulSparkError:
            coordinator.resume()
            raise
        before = self._engine.parallelism
        self._enter(JobState.RESCALING)
        with quiet(self._spark):
            self._engine.end_query_and_slots()
        try:
            self._start_with(parallelism)
        except Exception as error:
            # A job without slots would be worse than one that is not rescaled.
            _log.exception("rescale failed, the job goes on as before", parallelism=before)
            self._go_on_with(before, error)
            raise

    def _go_on_with(self, parallelism: int, error: Exception) -> None:
        try:
            with quiet(self._spark):
                self._engine.end_query_and_slots()
            self._start_with(parallelism)
        except Exception:
            self._fail(error)
            raise

    def _start_with(self, parallelism: int) -> None:
        """Start slots and query, of which none run, with ``parallelism``."""
        coordinator = self._coordinator
        with quiet(self._spark):
            resize_executors(self._spark, self._settings.executors_for(parallelism))
        slots = SlotTable(parallelism, slots_per_executor=self._settings.slots_per_executor, executors=executor_counter(self._spark))
        coordinator.replace_slots(slots)
        job, writer = self._engine.build(parallelism)
        self._engine.start_slots(job)
        coordinator.resume()
        self._engine.start_query(writer)
        self._enter(JobState.RUNNING)

    def _await_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._coordinator.slots.all_ready():
            self._check_open()
            if time.monotonic() > deadline:
                raise UnavailableError(f"the slots were not ready within {timeout_s:.0f} s; they go on starting")
            time.sleep(0.05)

    def recent_progress(self) -> list[dict[str, Any]]:
        """Spark's own figures of the last batches: ``batch``, ``rows`` of all sources, ``ms`` of the whole trigger."""
        return [] if self._ended.is_set() else self._engine.recent_progress()

    def metrics(self) -> list[MetricSample]:
        """See JobControls."""
        query = self._engine.query
        progress = query.lastProgress if query is not None and not self._ended.is_set() else None
        return samples_of(
            self._settings.name,
            self._coordinator,
            restarts=self._restarts,
            progress=progress,
            native_metrics=self._settings.native_metrics,
        )

    def memory(self) -> MemoryStatus:
        """See JobControls."""
        return self._coordinator.memory.status(self._coordinator.slots.all())

    def tune_memory(self, change: MemoryChange, timeout_s: float) -> MemoryStatus:
        """See JobControls."""
        self._check_open()
        tuning = self._coordinator.memory.change(change)
        deadline = time.monotonic() + timeout_s
        while waiting := waits_for(self._coordinator.slots.all(), tuning.revision):
            self._check_open()
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"slot {', '.join(map(str, waiting))} did not take over the split within {timeout_s:.0f} s; it does so with its next"
                    " sign of life"
                )
            time.sleep(_POLL_S)
        return self.memory()

    def wait(self, timeout_s: float | None) -> JobState:
        """See JobControls."""
        self._ended.wait(timeout_s)
        return self._state
