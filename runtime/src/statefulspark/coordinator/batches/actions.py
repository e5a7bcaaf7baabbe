"""Begins batches: answers exchange tasks and tick sources."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from statefulspark import failpoints
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.batches.reports import BatchReports
from statefulspark.coordinator.batches.starts import BatchStarts
from statefulspark.coordinator.batches.tick_offsets import tick_answer
from statefulspark.coordinator.core import events
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.first_error import FirstError
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.query.lifecycle import QueryLifecycle
from statefulspark.coordinator.slots.crashes import CrashWatch
from statefulspark.coordinator.slots.job_slots import JobSlots
from statefulspark.coordinator.slots.operator_states import OperatorDistribution
from statefulspark.coordinator.slots.restore_preparation import RestorePreparation
from statefulspark.coordinator.slots.state import READY, RESTORING, Slot
from statefulspark.errors import UnavailableError
from statefulspark.rpc.codec import Action
from statefulspark.rpc.messages.batches import (
    Acknowledge,
    BatchRun,
    Begin,
    BeginAnswer,
    EmptyPartition,
    Planned,
    Tick,
    TickAnswer,
    Wait,
)
from statefulspark.state.registry import StateRegistry

_log = structlog.get_logger("statefulspark.coordinator")
_PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Says whether slots can serve tasks, and how long these wait.

    Attributes:
        states: State ids.
        operator_states: The distribution of operator state, guarded by the inbox.
        preparation: Gets ready what slots restore.
        crashes: Counts the slots that die at the same rows.
        failure: What ends the job.
    """

    states: StateRegistry
    operator_states: OperatorDistribution
    preparation: RestorePreparation
    crashes: CrashWatch
    failure: FirstError

    def wait_for(self, slot: Slot) -> Wait | None:
        """Return the answer to a task whose slot does not serve; None if it does."""
        if slot.state != READY:
            return self.wait(slot)
        return self._restoring() if self.states.in_doubt else None

    def wait(self, slot: Slot) -> Wait:
        """Let a task wait for a slot. One that cannot register before the preparation ends counts as one that restores."""
        return self._restoring() if self.preparation.unfinished else Wait(reason=slot.state)

    def _restoring(self) -> Wait:
        """Let a task wait for as long as a restore may take, unless the job has failed meanwhile."""
        if self.failure.error is not None:
            raise self.failure.error
        return Wait(reason=RESTORING)


class BatchActions:
    """The coordinator's side of the requests that exchange tasks and tick sources make."""

    def __init__(
        self,
        inbox: Inbox,
        *,
        durable: DurableJob,
        batches: BatchLog,
        slots: JobSlots,
        starts: BatchStarts,
        query: QueryLifecycle,
        reports: BatchReports,
        serving: Serving,
    ) -> None:
        """Begin no batch yet.

        Args:
            inbox: Of the core.
            durable: The job's folder in storage.
            batches: The job's batches, guarded by the inbox.
            slots: Of the job.
            starts: Begins batches.
            query: Says which batches may begin.
            reports: What is reported of the running batch.
            serving: Says whether slots can serve tasks.
        """
        self._inbox = inbox
        self._durable = durable
        self._batches = batches
        self._slots = slots
        self._starts = starts
        self._query = query
        self._reports = reports
        self._serving = serving
        self._told_late: set[str] = set()
        """Uids of which the log says that they drop rows."""

    def actions(self) -> tuple[Action, ...]:
        """Return the requests that exchange tasks and tick sources may send."""
        guarded = self._durable.fence.guarded
        return (
            # A driver that was paused may have been replaced: it hands out no rows and takes over no results without asking.
            Begin.served_by(guarded(self.begin, self._serving.failure.fail)),
            Acknowledge.served_by(guarded(self._acknowledge, self._serving.failure.fail)),
            EmptyPartition.served_by(self._empty_partition),
            Planned.served_by(self.planned),
            Tick.served_by(self._tick),
        )

    def begin(self, request: Begin) -> BeginAnswer | Wait:
        """An exchange wants to run: begin the batch if it is new, and answer where the slot is."""
        uid, index, batch = request.uid, request.slot, request.batch
        running = self._starts.ask(batch)
        with self._inbox.lock:
            if running is None or not self._inbox.life.accepts(batch):
                return Wait(reason=_PAUSED)
            self._inbox.feed(events.PartitionBegun((uid, index)))
            expected, query = self._batches.expected_batch(uid, index), self._inbox.life.queries
            operator_state = self._serving.operator_states.scope(uid)
        slot = self._slots.table().get(index)
        if (wait := self._serving.wait_for(slot)) is not None:
            return wait
        self._serving.crashes.began(index, batch, uid=uid, epoch=slot.epoch, executor=slot.executor)
        parameters = running.parameters
        return BeginAnswer(
            location=slot.location,
            unix=slot.unix,
            epoch=slot.epoch,
            run=BatchRun(
                attempt=self._durable.attempt,
                watermark_ms=parameters.watermarks.get(uid),
                processing_time_ms=parameters.processing_time_ms,
                expected=expected,
                operator_state=operator_state,
                changelog=parameters.with_changelogs,
                inline_bytes=self._durable.inline_limits.changelog_bytes if running.grouped else 0,
                query=query,
            ),
        )

    def _empty_partition(self, request: EmptyPartition) -> Wait | None:
        if self._starts.ask(request.batch) is None:
            return Wait(reason=_PAUSED)
        with self._inbox.lock:
            unreported = self._serving.operator_states.unreported(request.uid)
        if unreported is not None:
            return self._serving.wait(self._slots.table().get(unreported))
        self._reports.report(request.uid, request.batch, request.run)
        return None

    def planned(self, _: Planned) -> Wait | None:
        """Spark has written the offsets of a batch and waits for this before it runs it: begin the batch."""
        with self._inbox.lock:
            life, batch = self._inbox.life, self._starts.planned_batch()
            if batch <= life.committed or (life.running is not None and batch <= life.running.batch):
                return None
            if self._query.stopping:
                raise UnavailableError("the query is being stopped")
        return None if self._starts.ask(batch) is not None else Wait(reason=_PAUSED)

    def _acknowledge(self, ack: Acknowledge) -> None:
        self._slots.table().check(ack.slot, ack.epoch)
        self._reports.acknowledged(ack, counted=self._see_late_rows)
        failpoints.reach("driver.acknowledged")

    def _see_late_rows(self, ack: Acknowledge) -> None:
        """Warn once per step that it drops rows. The caller holds the lock."""
        late = ack.metrics.late_rows_dropped
        if late and ack.uid not in self._told_late:
            self._told_late.add(ack.uid)
            _log.warning(
                f"uid {ack.uid!r} drops rows that come after the watermark has passed their windows, and the metric "
                "step_late_rows_dropped counts them. To have them, give the step a longer watermark, or its windows allowed_lateness(), or send "
                "such rows to a side output with side_output_late_data()",
                uid=ack.uid,
                batch=ack.batch,
                rows=late,
            )

    def _tick(self, request: Tick) -> TickAnswer | Wait:
        """Offset of the tick source: a new one while a timer is due; otherwise that of the last batch."""
        now_ms, ready = self._starts.now_ms(), self._slots.table().all_ready()
        reports = [slot.report.steps.get(request.uid) for slot in self._slots.all() if slot.report is not None]
        cleanup_due_ms = [report.cleanup_due_ms for report in reports if report is not None]
        with self._inbox.lock:
            if self._query.stopping:
                return TickAnswer(offset=request.after)
            return tick_answer(request, self._batches, self._query, now_ms=now_ms, ready=ready, cleanup_due_ms=cleanup_due_ms)
