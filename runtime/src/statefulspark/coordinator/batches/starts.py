"""BatchStarts: carries out what the core decides about batches that begin, and about checkpoints between two batches."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from statefulspark import failpoints
from statefulspark.coordinator.batches.completion import Completion
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.core import actions as do
from statefulspark.coordinator.core import events
from statefulspark.coordinator.core.life import BatchParameters, Running
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.coordinator.first_error import FirstError
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.query.lifecycle import QueryLifecycle
from statefulspark.coordinator.slots.job_slots import JobSlots
from statefulspark.coordinator.slots.operator_states import OperatorDistribution
from statefulspark.coordinator.snapshots.schedule import CheckpointSchedule
from statefulspark.errors import FencedError, StatefulSparkError

_log = structlog.get_logger("statefulspark.coordinator")
_CLOCK_BEHIND_MS = 60_000
"""Lag of the clock behind the processing time of batches from which the driver warns."""


class BatchStarts:
    """Begins batches; not to be called with the lock of the inbox.

    Args:
        inbox: Of the core.
        durable: The job's folder in storage.
        batches: The job's batches, guarded by the inbox.
        location: Spark's local checkpoint location.
        operator_states: The distribution of operator state, guarded by the inbox.
        slots: Of the job.
        query: Says which batches may begin.
        completion: Ends the batches before.
        checkpoints: Of the job; they start between two batches.
        now_ms: The clock that processing times come from.
        failure: What ends the job.
    """

    def __init__(  # noqa: PLR0913  one argument per part of the coordinator
        self,
        inbox: Inbox,
        *,
        durable: DurableJob,
        batches: BatchLog,
        location: SparkLocation,
        operator_states: OperatorDistribution,
        slots: JobSlots,
        query: QueryLifecycle,
        completion: Completion,
        checkpoints: CheckpointSchedule,
        now_ms: Callable[[], int],
        failure: FirstError,
    ) -> None:
        self._inbox = inbox
        self._durable = durable
        self._batches = batches
        self._location = location
        self._operator_states = operator_states
        self._slots = slots
        self._query = query
        self._completion = completion
        self._checkpoints = checkpoints
        self.now_ms = now_ms
        self._failure = failure
        self._clock_behind = False

    def ask(self, batch: int) -> Running | None:
        """Return the batch, which begins now if it is new; None if it must wait.

        Raises:
            FencedError: It has ended, or a newer attempt runs the job.
            StatefulSparkError: It cannot begin.
        """
        while True:
            with self._inbox.lock:
                if self._inbox.life.accepts(batch):
                    return self._inbox.life.running  # of each batch, most requests come while it runs
                asked = events.Asked(
                    batch=batch,
                    spark=self._location.facts(self._inbox.life),
                    paused=self._query.paused,
                    with_changelogs=self._durable.wants_changelogs(after=self._batches.committed),
                )
                actions = self._completion.feed(asked)
            self._completion.carry_out(actions)
            match actions[-1]:
                case do.Wait():
                    return None
                case do.Refuse():
                    raise FencedError(f"batch {batch} has ended; the last committed one is {self._batches.committed}")
                case do.WriteRecord() as action:
                    self._write_record(action)
                case _:
                    pass

    def planned_batch(self) -> int:
        """Return the last batch whose offsets Spark has written; -1 for none."""
        return self._location.files.planned_batch()

    def start_checkpoint(self) -> None:
        """Start a checkpoint while the query is idle, if one is due."""
        for action in self._inbox.feed(events.CheckpointDue()):
            self._start_checkpoint(action.number if isinstance(action, do.StartCheckpoint) else 0)

    def _write_record(self, action: do.WriteRecord) -> None:
        parameters = action.parameters
        with self._inbox.step(action.number):
            try:
                if self._failure.error is not None:
                    raise self._failure.error
                self._location.check(action.batch)
                if parameters is None:
                    parameters = self._new_parameters(action.batch)
                self._see_clock(parameters.processing_time_ms - self.now_ms())
                failpoints.reach("driver.begin")
                self._durable.write_record(parameters, self._location.files, self._location.state, self._batches)
                failpoints.reach("driver.begun")
            except BaseException as error:
                if isinstance(error, FencedError):
                    self._failure.fail(error)
                if parameters is not None:
                    self._inbox.feed(events.RecordWritten(number=action.number, parameters=parameters, is_certain=False))
                raise
        # A recovered batch may turn out to be committed by another attempt, whose operator state was distributed in another way.
        checkpoint = action.parameters is None or not self._operator_states.is_open
        written = events.RecordWritten(number=action.number, parameters=parameters, is_certain=True, checkpoint=checkpoint)
        if do.StartCheckpoint(action.number) in self._feed(written):
            self._start_checkpoint(action.number)

    def _new_parameters(self, batch: int) -> BatchParameters:
        with_changelogs = self._durable.wants_changelogs(after=self._batches.committed)
        now_ms, ready = self.now_ms(), self._slots.table().all_ready()
        with self._inbox.lock:
            return self._batches.next_parameters(batch, now_ms, drain=self._query.draining, with_changelogs=with_changelogs, ready=ready)

    def _start_checkpoint(self, number: int) -> None:
        """Start a checkpoint. The batch whose record is durable begins, whatever becomes of that."""
        try:
            self._checkpoints.start_if_due()
        except StatefulSparkError as error:
            _log.warning("a checkpoint did not start; it is tried again after the next batch", error=str(error)[:300])
        finally:
            self._feed(events.CheckpointStarted(number))

    def _feed(self, event: events.Event) -> tuple[do.Action, ...]:
        with self._inbox.lock:
            actions = self._inbox.feed(event)
            for action in actions:
                if isinstance(action, do.Begin):
                    self._batches.begin(action.parameters)
                    self._completion.reports.begin()
                    self._slots.settle(self._batches)
            return actions

    def _see_clock(self, behind_ms: int) -> None:
        """Warn once if the driver's clock was set back, or was ahead before: the processing time of batches waits for it."""
        is_behind = behind_ms > _CLOCK_BEHIND_MS
        if is_behind and not self._clock_behind:
            _log.warning(
                "the driver's clock is behind the processing time of earlier batches. Until it has caught up, processing time stands still: "
                "timers and time to live wait. Check the clock of this machine",
                behind_s=behind_ms // 1000,
            )
        self._clock_behind = is_behind
