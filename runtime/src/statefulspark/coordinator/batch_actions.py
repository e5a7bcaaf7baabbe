"""Begins batches: answers exchange tasks and tick sources.

The lock is the coordinator's batch lock; see there for the order in which locks may be nested.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import structlog

from statefulspark import failpoints
from statefulspark.coordinator.batch_completion import Completion
from statefulspark.coordinator.batch_log import BatchLog, BatchParameters
from statefulspark.coordinator.checkpoint_schedule import CheckpointSchedule
from statefulspark.coordinator.dry_runs import DryRuns
from statefulspark.coordinator.durable_job import DurableJob
from statefulspark.coordinator.operator_states import OperatorDistribution
from statefulspark.coordinator.query_lifecycle import QueryLifecycle
from statefulspark.coordinator.restore_preparation import RestorePreparation
from statefulspark.coordinator.slot_calls import SlotCalls
from statefulspark.coordinator.slot_crashes import CrashWatch
from statefulspark.coordinator.slot_state import READY, RESTORING, Slot
from statefulspark.coordinator.slot_table import SlotTable
from statefulspark.coordinator.tick_offsets import tick_answer
from statefulspark.errors import FencedError, StatefulSparkError, UnavailableError
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
_CLOCK_BEHIND_MS = 60_000
"""Lag of the clock behind the processing time of batches from which the driver warns."""


class BatchActions:
    """The coordinator's side of the requests that exchange tasks and tick sources make."""

    def __init__(  # noqa: PLR0913  one argument per part of the coordinator
        self,
        *,
        durable: DurableJob,
        batches: BatchLog,
        states: StateRegistry,
        operator_states: OperatorDistribution,
        preparation: RestorePreparation,
        slots: Callable[[], SlotTable],
        dry_runs: DryRuns,
        query: QueryLifecycle,
        completion: Completion,
        checkpoints: CheckpointSchedule,
        calls: SlotCalls,
        crashes: CrashWatch,
        lock: threading.RLock,
        now_ms: Callable[[], int],
        fatal: Callable[[], StatefulSparkError | None],
        fail: Callable[[StatefulSparkError], None],
    ) -> None:
        """Begin no batch yet.

        Args:
            durable: The job's folder in storage.
            batches: The job's batches, guarded by ``lock``.
            states: State ids.
            operator_states: The distribution of operator state, guarded by ``lock``.
            preparation: Gets ready what slots restore.
            slots: Returns the table of now, which a rescale replaces.
            dry_runs: Spark's local checkpoint location, the state of its own steps there, and batches that run again for that alone.
            query: Says which batches may begin.
            completion: Decides when a batch is committed.
            checkpoints: Of the job; they start between two batches.
            calls: Calls slots.
            crashes: Counts the slots that die at the same rows.
            lock: The coordinator's batch lock.
            now_ms: The clock that processing times come from.
            fatal: Returns what ends the job, None if nothing does.
            fail: Ends the job.
        """
        self._durable = durable
        self._batches = batches
        self._states = states
        self._operator_states = operator_states
        self._preparation = preparation
        self._slots = slots
        self._dry_runs = dry_runs
        self._files = dry_runs.files
        self._query = query
        self._completion = completion
        self._checkpoints = checkpoints
        self._calls = calls
        self._crashes = crashes
        self._lock = lock
        self._now_ms = now_ms
        self._fatal = fatal
        self._fail = fail
        self._clock_behind = False
        self._told_late: set[str] = set()
        """Uids of which the log says that they drop rows."""

    def actions(self) -> tuple[Action, ...]:
        """Return the requests that exchange tasks and tick sources may send."""
        guarded = self._durable.fence.guarded
        return (
            # A driver that was paused may have been replaced: it hands out no rows and takes over no results without asking.
            Begin.served_by(guarded(self.begin, self._fail)),
            Acknowledge.served_by(guarded(self._acknowledge, self._fail)),
            EmptyPartition.served_by(self._empty_partition),
            Planned.served_by(self.planned),
            Tick.served_by(self._tick),
        )

    def begin(self, request: Begin) -> BeginAnswer | Wait:
        """An exchange wants to run: begin the batch if it is new, and answer where the slot is."""
        uid, index, batch = request.uid, request.slot, request.batch
        with self._lock:
            current = self._current(batch)
            if current is None:
                return Wait(reason=_PAUSED)
            self._completion.begun(uid, index)
            expected = self._batches.expected_batch(uid, index)
            operator_state, query = self._operator_states.scope(uid), self._completion.queries
            inline_bytes = self._completion.inline_bytes
        slot = self._slots().get(index)
        if slot.state != READY:
            return self._wait_for(slot)
        if self._states.in_doubt:
            return self._restoring()
        self._crashes.began(index, batch, uid=uid, epoch=slot.epoch, executor=slot.executor)
        return BeginAnswer(
            location=slot.location,
            unix=slot.unix,
            epoch=slot.epoch,
            run=BatchRun(
                attempt=self._durable.attempt,
                watermark_ms=current.watermarks.get(uid),
                processing_time_ms=current.processing_time_ms,
                expected=expected,
                operator_state=operator_state,
                changelog=current.with_changelogs,
                inline_bytes=inline_bytes,
                query=query,
            ),
        )

    def _empty_partition(self, request: EmptyPartition) -> Wait | None:
        with self._lock:
            if self._current(request.batch) is None:
                return Wait(reason=_PAUSED)
            unreported = self._operator_states.unreported(request.uid)
        if unreported is not None:
            return self._wait_for(self._slots().get(unreported))
        self._completion.report(request.uid, request.batch, request.run)
        return None

    def _wait_for(self, slot: Slot) -> Wait:
        """The answer to a task whose slot does not serve. A slot that cannot register before the preparation ends counts as one that restores."""
        return self._restoring() if self._preparation.unfinished else Wait(reason=slot.state)

    def _restoring(self) -> Wait:
        """Let a task wait for as long as a restore may take, unless the job has failed meanwhile."""
        if (fatal := self._fatal()) is not None:
            raise fatal
        return Wait(reason=RESTORING)

    def _current(self, batch: int) -> BatchParameters | None:
        """The parameters of ``batch``, which begins now if it is new; None if it must wait. The caller holds the lock."""
        current = self._batches.current
        if current is None or batch > current.batch:
            return None if self._must_wait(batch) else self._begin_batch(batch)
        if batch < current.batch or batch <= self._batches.committed:
            raise FencedError(f"batch {batch} has ended; the current batch is {current.batch}")
        return current

    def planned(self, _: Planned) -> Wait | None:
        """Spark has written the offsets of a batch and waits for this before it runs it: begin the batch."""
        with self._lock:
            batch, current = self._files.planned_batch(), self._batches.current
            if batch < 0 or batch <= self._batches.committed or (current is not None and batch <= current.batch):
                return None
            if self._query.stopping:
                raise UnavailableError("the query is being stopped")
            if self._must_wait(batch):
                return Wait(reason=_PAUSED)
            self._begin_batch(batch)
        return None

    def _must_wait(self, batch: int) -> bool:
        """True if a new batch may not begin now. A recovered one may, because a pause waits for its end."""
        recovered = self._completion.recovered
        if batch == self._dry_runs.batch or (recovered is not None and batch == recovered.batch):
            return False
        if not self._completion.finish(before=batch):
            return True
        return self._query.paused or self._dry_runs.holds(batch)

    def _begin_batch(self, batch: int) -> BatchParameters:
        """Commit the batch before, make the new batch's record durable, start a checkpoint if one is due. The caller holds the lock."""
        if (fatal := self._fatal()) is not None:
            raise fatal
        self._dry_runs.check(batch)
        log = self._batches
        parameters, begun = self._parameters_of(batch)
        self._see_clock(parameters.processing_time_ms - self._now_ms())
        failpoints.reach("driver.begin")
        try:
            self._durable.write_record(parameters, self._files, self._dry_runs.state, log)
        except FencedError as error:
            self._fail(error)
            raise
        failpoints.reach("driver.begun")
        # A recovered batch may turn out to be committed by another attempt, whose operator state was distributed in another way.
        if log.committed >= 0 and (not begun or not self._operator_states.is_open):
            self._checkpoints.start_if_due()
        log.begin(parameters)
        self._completion.begin()
        self._calls.settle(self._slots().all(), log)
        return parameters

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

    def _parameters_of(self, batch: int) -> tuple[BatchParameters, bool]:
        """The parameters of a batch that begins, and whether it has begun before, in this driver or an earlier one."""
        pending, recovered, log = self._durable.begun, self._completion.recovered, self._batches
        if pending is not None and pending.batch == batch:
            return pending, True  # its record may be stored already
        with_changelogs = self._durable.wants_changelogs(after=log.committed)
        if recovered is not None and recovered.batch == batch:
            return replace(recovered, with_changelogs=with_changelogs), True
        now_ms, drain = self._now_ms(), self._query.draining
        ready = self._slots().all_ready()
        return log.next_parameters(batch, now_ms, drain=drain, with_changelogs=with_changelogs, ready=ready), False

    def _acknowledge(self, ack: Acknowledge) -> None:
        self._slots().check(ack.slot, ack.epoch)
        with self._lock:
            self._completion.check_order(ack)
            if not self._batches.acknowledge(ack):
                raise FencedError(f"batch {ack.batch} has ended")
            self._see_late_rows(ack)
        self._completion.acknowledged(ack.uid, ack.batch)
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
        now_ms, ready = self._now_ms(), self._slots().all_ready()
        reports = [slot.report.steps.get(request.uid) for slot in self._slots().all() if slot.report is not None]
        cleanup_due_ms = [report.cleanup_due_ms for report in reports if report is not None]
        with self._lock:
            if self._query.stopping:
                return TickAnswer(offset=request.after)
            return tick_answer(request, self._batches, self._query, now_ms=now_ms, ready=ready, cleanup_due_ms=cleanup_due_ms)
