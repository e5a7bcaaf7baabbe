"""The coordinator: numbers batches, hands slots to exchanges, collects acknowledgements, and lets checkpoints start between batches.

It serves slots, exchange tasks and the tick source over Flight. Locks, in the order in which they may be nested:
the batch lock (everything about batches, held while a batch record is written), then those of the slot table and the state registry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from statefulspark.coordinator.batch_actions import BatchActions
from statefulspark.coordinator.batch_completion import Completion
from statefulspark.coordinator.batch_log import BatchLog, BatchParameters
from statefulspark.coordinator.checkpoint_schedule import CheckpointSchedule
from statefulspark.coordinator.controls import CheckpointInfo, MemoryChange, MemoryStatus
from statefulspark.coordinator.dry_runs import DryRuns
from statefulspark.coordinator.durable_job import DurableJob
from statefulspark.coordinator.memory_tuning import MemoryTuner, await_split
from statefulspark.coordinator.pending_checkpoint import CheckpointTimes, Request
from statefulspark.coordinator.restore_failures import RestoreFailures
from statefulspark.coordinator.slot_actions import SlotActions
from statefulspark.coordinator.slot_calls import SlotCalls
from statefulspark.coordinator.slot_crashes import CrashWatch
from statefulspark.coordinator.slot_table import READY, Slot, SlotTable
from statefulspark.coordinator.view import CoordinatorView, view_of
from statefulspark.errors import FencedError, StatefulSparkError, UnavailableError, UserFunctionError
from statefulspark.rpc.certificates import CertificateFolder
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.slot_control import Snapshot
from statefulspark.rpc.messages.slots import SnapshotDone
from statefulspark.state.registry import StateRegistry

_log = structlog.get_logger("statefulspark.coordinator")


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
        self._durable = durable
        self._batches = batches
        self._states = states
        self._slots = slots
        self._memory = memory
        self.fatal: StatefulSparkError | None = None
        self._dry_runs = dry_runs
        self.secret = listen.secret
        self._lock = threading.RLock()
        self._calls = SlotCalls(listen.secret, listen.certificates)
        self._crashes = CrashWatch()
        self._completion = Completion(
            batches=batches,
            changelogs=durable.changelogs,
            dry_runs=dry_runs,
            slots=lambda: self._slots,
            calls=self._calls,
            states=states,
            max_parallelism=durable.max_parallelism,
            recovered=recovered,
            lock=self._lock,
            fail=self._fail,
        )
        self._checkpoints = CheckpointSchedule(
            durable=durable,
            batches=batches,
            states=states,
            dry_runs=dry_runs,
            times=times,
            lock=self._lock,
            slots=lambda: self._slots.all(),  # noqa: PLW0108  of the table of now, which a rescale replaces
            call_slot=self._call_slot,
            fenced=self._fail,
        )
        slot_actions = SlotActions(
            lock=self._lock,
            slots=lambda: self._slots,
            durable=durable,
            batches=batches,
            states=states,
            memory=memory,
            completion=self._completion,
            crashes=self._crashes,
            restores=RestoreFailures(durable, batches, self._fail),
            fail=self._fail,
        )
        self._batch_actions = BatchActions(
            durable=durable,
            batches=batches,
            states=states,
            slots=lambda: self._slots,
            dry_runs=dry_runs,
            completion=self._completion,
            checkpoints=self._checkpoints,
            calls=self._calls,
            crashes=self._crashes,
            lock=self._lock,
            now_ms=now_ms,
            fatal=lambda: self.fatal,
            fail=self._fail,
        )
        actions = (*self._batch_actions.actions(), *slot_actions.actions(), SnapshotDone.served_by(self._snapshot_done))
        self._service = FlightListener(listen.host, listen.secret, actions, certificates=listen.certificates)
        self.location = self._service.location

    def view(self) -> CoordinatorView:
        """Return a copy of what the coordinator knows now; never blocks on storage or slots."""
        return view_of(
            durable=self._durable,
            batches=self._batches,
            states=self._states,
            slots=self._slots,
            dry_runs=self._dry_runs,
            checkpoints=self._checkpoints,
            memory=self._memory,
        )

    def next_query(self, *, available_now: bool = False) -> bool:
        """A query is about to start; see `BatchActions.next_query`."""
        return self._batch_actions.next_query(available_now=available_now)

    def end_query(self) -> None:
        """The query is about to be stopped; see `BatchActions.end_query`."""
        self._batch_actions.end_query()

    def idle(self) -> bool:
        """True if nothing is left to do; see `BatchActions.idle`."""
        return self._batch_actions.idle()

    def pause(self, timeout_s: float) -> None:
        """Let no further batch begin; see `BatchActions.pause`."""
        self._batch_actions.pause(timeout_s)

    def resume(self) -> None:
        """Let batches begin again."""
        self._batch_actions.resume()

    def drain(self, *, on: bool = True) -> None:
        """Make every event-time timer due, or with ``on=False`` no longer."""
        self._batch_actions.drain = on

    def _call_slot(self, slot: Slot, request: Snapshot) -> None:
        try:
            self._calls.snapshot(slot, request)
        except UnavailableError:
            self._slots.lose(slot.index, slot.epoch)
            raise

    def stop_slots(self) -> None:
        """Tell every slot to end; those that cannot be reached do so at their next heartbeat."""
        self._slots.stopping = True
        for slot in self._slots.all():
            if slot.state == READY:
                self._calls.stop(slot)

    def replace_slots(self, slots: SlotTable) -> None:
        """Go on with other slots (another parallelism); the caller has paused batches and stopped the old slots."""
        with self._lock:
            slots.next_epoch = self._slots.next_epoch
            self._slots = slots
            self._crashes.forget()
            self._batches.reset_slots()

    def report_to(
        self,
        *,
        checkpoint_ended: Callable[[CheckpointInfo | StatefulSparkError, bool], None],
        slot_crashed: Callable[[UserFunctionError], None],
    ) -> None:
        """Report every outcome of a checkpoint, with True for a savepoint, and a function that ends its slot again and again."""
        self._checkpoints.on_checkpoint(checkpoint_ended)
        self._crashes.on_failure(slot_crashed)

    def savepoint_target(self, target: str | None) -> str:
        """URL below which a savepoint goes; see `DurableJob.savepoint_target`."""
        return self._durable.savepoint_target(target)

    def request_snapshot(self, savepoint: str | None) -> Request:
        """Ask for a checkpoint at the next batch boundary, or for a savepoint below the URL ``savepoint``."""
        return self._checkpoints.request(savepoint)

    def take_snapshot(self, savepoint: str | None, timeout_s: float, check_open: Callable[[], None]) -> CheckpointInfo:
        """Take a checkpoint, or a savepoint below the URL ``savepoint``; see `CheckpointSchedule.take`."""
        return self._checkpoints.take(savepoint, timeout_s, check_open)

    def delete_state(self) -> None:
        """Delete the state of the cancelled job; see `DurableJob.delete_checkpoints`."""
        self._durable.delete_checkpoints()

    def memory_status(self) -> MemoryStatus:
        """How slots divide their managed memory; see `MemoryTuner.status`."""
        return self._memory.status(self._slots.all())

    def tune_memory(self, change: MemoryChange, timeout_s: float, check_open: Callable[[], None]) -> MemoryStatus:
        """Change how slots divide their managed memory, and return once each slot that serves has done so; see `MemoryTuner.change`."""
        tuning = self._memory.change(change)
        await_split(lambda: self._slots.all(), tuning.revision, timeout_s, check_open)  # noqa: PLW0108  of the table of now
        return self.memory_status()

    def poll(self) -> bool:
        """Called a few times a second: checkpoints of an idle query, and those that take too long.

        Returns:
            True if it is time for another query: the dry run of a batch, or the real query after it.
        """
        self._checkpoints.expire()
        with self._lock:
            # First of all: whether a checkpoint is due depends on what is committed.
            if self._completion.finish() and self._checkpoints.is_due() and self._slots.all_ready():
                self._checkpoints.start_if_due()
            return self._dry_runs.due()

    def check_fence(self) -> None:
        """Notice a newer attempt although no batch runs; trouble with storage is left to the next batch."""
        try:
            self._durable.fence.check()
        except FencedError as error:
            self.fatal = error
        except StatefulSparkError as error:
            _log.info("could not check for a newer attempt", error=str(error)[:200])

    def _snapshot_done(self, done: SnapshotDone) -> None:
        self._slots.check(done.slot, done.epoch)
        self._checkpoints.slot_done(done)

    def _fail(self, error: StatefulSparkError) -> None:
        if self.fatal is None:
            self.fatal = error

    def close(self) -> None:
        """Stop serving."""
        self._checkpoints.close()
        self._calls.close()
        self._service.shutdown()
