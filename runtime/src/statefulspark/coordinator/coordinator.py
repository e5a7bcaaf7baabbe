"""The coordinator: numbers batches, hands slots to exchanges, collects acknowledgements, and lets checkpoints start between batches.

It serves slots, exchange tasks and the tick source over Flight. Locks, in the order in which they may be nested:
the batch lock (everything about batches, held while a batch record is written), then those of the slot table and the state registry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from statefulspark import failpoints
from statefulspark.coordinator.batch_completion import Completion
from statefulspark.coordinator.batch_log import BatchLog, BatchParameters
from statefulspark.coordinator.checkpoint_schedule import CheckpointSchedule
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.dry_runs import DryRuns
from statefulspark.coordinator.durable_job import DurableJob
from statefulspark.coordinator.memory_tuning import MemoryTuner
from statefulspark.coordinator.pending_checkpoint import CheckpointTimes
from statefulspark.coordinator.restore_failures import RestoreFailures
from statefulspark.coordinator.slot_actions import SlotActions
from statefulspark.coordinator.slot_calls import SlotCalls
from statefulspark.coordinator.slot_crashes import CrashWatch
from statefulspark.coordinator.slot_table import READY, RESTORING, Slot, SlotTable
from statefulspark.coordinator.tick_offsets import TickOffsets
from statefulspark.errors import FencedError, StatefulSparkError, UnavailableError, UserFunctionError
from statefulspark.rpc.certificates import CertificateFolder
from statefulspark.rpc.listener import FlightListener
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
from statefulspark.rpc.messages.slot_control import Snapshot
from statefulspark.rpc.messages.slots import SnapshotDone
from statefulspark.state.registry import StateRegistry

_log = structlog.get_logger("statefulspark.coordinator")
_PAUSED = "paused"


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where the coordinator answers."""

    host: str | None
    """Address to listen on; None for a Unix socket: all processes of the job are on this machine."""
    secret: str = field(repr=False)
    """The job's secret; calls without it are refused."""
    certificates: CertificateFolder | None = None
    """Needed with ``host``: nothing crosses machines in clear."""


class Coordinator:
    """The driver's side of the batch protocol; one per attempt."""

    def __init__(  # noqa: PLR0913  one argument per part of the coordinator, and a clock that tests replace
        self,
        *,
        durable: DurableJob,
        batches: BatchLog,
        states: StateRegistry,
        slots: SlotTable,
        dry_runs: DryRuns,
        listen: Listen,
        recovered: BatchParameters | None,
        times: CheckpointTimes,
        memory: MemoryTuner,
        now_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        """Start serving.

        Args:
            durable: the job's folder in storage, claimed by this attempt.
            batches: what recovery knows of batches.
            states: state ids.
            slots: the slots of the first parallelism.
            dry_runs: Spark's local checkpoint location, the state of its own steps there, and batches that run again for that alone.
            listen: address and secret.
            recovered: the uncommitted batch that runs again, with its parameters.
            times: when checkpoints are taken.
            memory: how slots divide their managed memory.
            now_ms: the clock that processing times come from, in milliseconds since the epoch; tests set their own.
        """
        self.durable = durable
        self.batches = batches
        self.states = states
        self.slots = slots
        self.memory = memory
        self._now_ms = now_ms
        self.drain = False
        self.fatal: StatefulSparkError | None = None
        self._files = dry_runs.files
        self._spark_state = dry_runs.state
        self.dry_runs = dry_runs
        self.secret = listen.secret
        self._lock = threading.RLock()
        self._paused = False
        self._query_ending = False
        self._calls = SlotCalls(listen.secret, listen.certificates)
        self.crashes = CrashWatch()
        self._ticks = TickOffsets(batches)
        self._completion = Completion(
            batches=batches,
            changelogs=durable.changelogs,
            dry_runs=dry_runs,
            slots=lambda: self.slots,
            calls=self._calls,
            max_parallelism=durable.max_parallelism,
            recovered=recovered,
            lock=self._lock,
            fail=self._fail,
        )
        self.checkpoints = CheckpointSchedule(
            durable=durable,
            batches=batches,
            states=states,
            dry_runs=dry_runs,
            times=times,
            lock=self._lock,
            slots=lambda: self.slots.all(),  # noqa: PLW0108  of the table of now, which a rescale replaces
            call_slot=self._call_slot,
            fenced=self._fail,
        )
        slot_actions = SlotActions(
            lock=self._lock,
            slots=lambda: self.slots,
            durable=durable,
            batches=batches,
            states=states,
            memory=memory,
            completion=self._completion,
            crashes=self.crashes,
            restores=RestoreFailures(durable, batches, self._fail),
            fail=self._fail,
        )
        actions = (
            # A driver that was paused may have been replaced: it hands out no rows and takes over no results without asking.
            Begin.served_by(durable.fence.guarded(self._begin, self._fail)),
            Acknowledge.served_by(durable.fence.guarded(self._acknowledge, self._fail)),
            EmptyPartition.served_by(self._empty_partition),
            Planned.served_by(self._planned),
            Tick.served_by(self._tick),
            SnapshotDone.served_by(self._snapshot_done),
            *slot_actions.actions(),
        )
        self._service = FlightListener(listen.host, listen.secret, actions, certificates=listen.certificates)
        self.location = self._service.location

    def _begin(self, request: Begin) -> BeginAnswer | Wait:
        """An exchange wants to run: begin the batch if it is new, and answer where the slot is."""
        uid, index, batch = request.uid, request.slot, request.batch
        with self._lock:
            current = self._current(batch)
            if current is None:
                return Wait(reason=_PAUSED)
            self._completion.begun(uid, index)
            expected = self.batches.expected_batch(uid, index)
        slot = self.slots.get(index)
        if slot.state != READY:
            return Wait(reason=slot.state)
        if self.states.in_doubt:
            if self.fatal is not None:
                raise self.fatal
            return Wait(reason=RESTORING)
        self.crashes.began(index, batch, uid=uid, epoch=slot.epoch, executor=slot.executor)
        return BeginAnswer(
            location=slot.location,
            unix=slot.unix,
            epoch=slot.epoch,
            run=BatchRun(
                attempt=self.durable.attempt,
                watermark_ms=current.watermarks.get(uid),
                processing_time_ms=current.processing_time_ms,
                expected=expected,
            ),
        )

    def _empty_partition(self, request: EmptyPartition) -> Wait | None:
        with self._lock:
            if self._current(request.batch) is None:
                return Wait(reason=_PAUSED)
        self._completion.report(request.uid, request.batch, request.run)
        return None

    def _current(self, batch: int) -> BatchParameters | None:
        """The parameters of ``batch``, which begins now if it is new; None if it must wait. The caller holds the lock."""
        current = self.batches.current
        if current is None or batch > current.batch:
            return None if self._must_wait(batch) else self._begin_batch(batch)
        if batch < current.batch or batch <= self.batches.committed:
            raise FencedError(f"batch {batch} is over, the job is at {current.batch}")
        return current

    def _planned(self, _: Planned) -> Wait | None:
        """Spark has written the offsets of a batch and waits for this before it runs it: begin the batch."""
        with self._lock:
            batch, current = self._files.planned_batch(), self.batches.current
            if batch < 0 or batch <= self.batches.committed or (current is not None and batch <= current.batch):
                return None
            if self._query_ending:
                raise UnavailableError("the query is being stopped")
            if self._must_wait(batch):
                return Wait(reason=_PAUSED)
            self._begin_batch(batch)
        return None

    def _must_wait(self, batch: int) -> bool:
        """Whether a new batch may not begin now. A recovered one may, because a pause waits for its end."""
        recovered = self._completion.recovered
        if batch == self.dry_runs.batch or (recovered is not None and batch == recovered.batch):
            return False
        if not self._completion.finish(before=batch):
            return True
        return self._paused or self.dry_runs.holds(batch)

    def end_query(self) -> None:
        """The query is about to be stopped: a batch that waits to begin is cancelled, because Spark does not interrupt that wait."""
        self._query_ending = True

    def next_query(self, *, available_now: bool = False) -> bool:
        """A query is about to start: forget plans of batches that never began. True when it must be one without a sink.

        Args:
            available_now: whether it ends by itself (``trigger(availableNow=True)``).
        """
        with self._lock:
            self._query_ending = False
            self._ticks.until_ms = self._now_ms() if available_now else None
            current = self.batches.current
            if current is not None and current.batch > self.batches.committed and not self._files.is_committed(current.batch):
                # It runs again; or a cut-off driver commits the sink, it does not, and slots have acknowledged only a part of it here.
                self._completion.recovered = current
            dry = self.dry_runs.next_query()
            known = [batch.batch for batch in (current, self._completion.recovered, self.durable.begun) if batch is not None]
            if self.dry_runs.batch is not None:
                known.append(self.dry_runs.batch)
            self._files.forget_planned(after=max([self.batches.committed, *known]))
        return dry

    def _begin_batch(self, batch: int) -> BatchParameters:
        """Commit the batch before, make the new batch's record durable, start a checkpoint if one is due. The caller holds the lock."""
        if self.fatal is not None:
            raise self.fatal
        self.dry_runs.check(batch)
        log = self.batches
        begun = next((each for each in (self.durable.begun, self._completion.recovered) if each is not None and each.batch == batch), None)
        parameters = begun or log.next_parameters(batch, self._now_ms(), drain=self.drain)
        failpoints.reach("driver.begin")
        try:
            self.durable.write_record(parameters, self._files, self._spark_state, log, [slot.epoch for slot in self.slots.all()])
        except FencedError as error:
            self.fatal = error
            raise
        failpoints.reach("driver.begun")
        if log.committed >= 0:
            self.checkpoints.start_if_due()
        log.begin(parameters)
        self._completion.begin()
        self._calls.settle(self.slots.all(), log)
        return parameters

    def _acknowledge(self, ack: Acknowledge) -> None:
        self.slots.check(ack.slot, ack.epoch)
        with self._lock:
            if not self.batches.acknowledge(ack):
                raise FencedError(f"batch {ack.batch} is over")
        self._completion.acknowledged(ack.uid, ack.batch)
        failpoints.reach("driver.acknowledged")

    def _tick(self, request: Tick) -> TickAnswer | Wait:
        """Offset of the tick source: a new one while a timer is due; otherwise that of the last batch."""
        now_ms, ready = self._now_ms(), self.slots.all_ready()
        with self._lock:
            if self._query_ending:
                return TickAnswer(offset=request.after)
            return self._ticks.answer(request, now_ms, drain=self.drain, paused=self._paused, ready=ready)

    def idle(self) -> bool:
        """Whether every slot has reported its timers, none of them is due, and the last batch that began is committed."""
        now_ms = self._now_ms()
        with self._lock:
            if not self.slots.all_ready():
                return False
            return self._completion.finish() and not any(
                self.batches.tick_due(uid, now_ms, drain=self.drain) for uid in self.batches.delays_ms
            )

    def pause(self, timeout_s: float) -> None:
        """Let no further batch begin; returns when the running one is committed.

        Raises:
            UnavailableError: it did not end in time; batches go on.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._paused = True
        while time.monotonic() < deadline:
            with self._lock, suppress(UnavailableError):
                if self._completion.finish():
                    return
            time.sleep(0.02)
        self.resume()
        raise UnavailableError(f"the running batch did not end within {timeout_s:.0f} s")

    def resume(self) -> None:
        """Let batches begin again."""
        with self._lock:
            self._paused = False

    def _call_slot(self, slot: Slot, request: Snapshot) -> None:
        try:
            self._calls.snapshot(slot, request)
        except UnavailableError:
            self.slots.lose(slot.index, slot.epoch)
            raise

    def stop_slots(self) -> None:
        """Tell every slot to end; those that cannot be reached do so at their next heartbeat."""
        self.slots.stopping = True
        for slot in self.slots.all():
            if slot.state == READY:
                self._calls.stop(slot)

    def replace_slots(self, slots: SlotTable) -> None:
        """Go on with other slots (another parallelism); the caller has paused batches and stopped the old slots."""
        with self._lock:
            slots.next_epoch = self.slots.next_epoch
            self.slots = slots
            self.crashes.forget()
            self.batches.reset_slots()

    def report_to(
        self,
        *,
        checkpoint_ended: Callable[[CheckpointInfo | StatefulSparkError, bool], None],
        slot_crashed: Callable[[UserFunctionError], None],
    ) -> None:
        """Report every outcome of a checkpoint, with True for a savepoint, and a function that ends its slot again and again."""
        self.checkpoints.on_checkpoint(checkpoint_ended)
        self.crashes.on_failure(slot_crashed)

    def take_snapshot(self, savepoint: str | None, timeout_s: float, check_open: Callable[[], None]) -> CheckpointInfo:
        """Take a checkpoint, or a savepoint below the URL ``savepoint``; see `CheckpointSchedule.take`."""
        return self.checkpoints.take(savepoint, timeout_s, check_open)

    def poll(self) -> None:
        """Called a few times a second: checkpoints of an idle query, and those that take too long."""
        self.checkpoints.expire()
        with self._lock:
            # First of all: whether a checkpoint is due depends on what is committed.
            if self._completion.finish() and self.checkpoints.is_due() and self.slots.all_ready():
                self.checkpoints.start_if_due()

    def check_fence(self) -> None:
        """Notice a newer attempt although no batch runs; trouble with storage is left to the next batch."""
        try:
            self.durable.fence.check()
        except FencedError as error:
            self.fatal = error
        except StatefulSparkError as error:
            _log.info("cannot look for a newer attempt", error=str(error)[:200])

    def _snapshot_done(self, done: SnapshotDone) -> None:
        self.slots.check(done.slot, done.epoch)
        self.checkpoints.slot_done(done)

    def _fail(self, error: StatefulSparkError) -> None:
        if self.fatal is None:
            self.fatal = error

    def close(self) -> None:
        """Stop serving."""
        self.checkpoints.close()
        self._calls.close()
        self._service.shutdown()
