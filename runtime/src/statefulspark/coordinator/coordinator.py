"""The coordinator: numbers batches, hands slots to exchanges, collects acknowledgements, and lets checkpoints start between batches.

It serves slots, exchange tasks and the tick source over Flight. Locks, in the order in which they may be nested:
the batch lock (everything about batches, held while a batch record is written), then those of the slot table and the state registry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import structlog

from statefulspark.coordinator.batch_actions import BatchActions
from statefulspark.coordinator.batch_completion import Completion
from statefulspark.coordinator.batch_log import BatchLog, BatchParameters
from statefulspark.coordinator.canonical_savepoints import CanonicalSavepoints
from statefulspark.coordinator.checkpoint_schedule import CheckpointSchedule, SnapshotEnded
from statefulspark.coordinator.dry_runs import DryRuns
from statefulspark.coordinator.durable_job import DurableJob
from statefulspark.coordinator.going_back import GoingBack, GoingBackWanted
from statefulspark.coordinator.job_slots import JobSlots
from statefulspark.coordinator.memory_tuning import MemoryTuner, RunningMemory
from statefulspark.coordinator.operator_states import OperatorDistribution
from statefulspark.coordinator.pending_checkpoint import CheckpointTimes
from statefulspark.coordinator.query_lifecycle import QueryLifecycle
from statefulspark.coordinator.restore_failures import RestoreFailures
from statefulspark.coordinator.restore_preparation import RestorePreparation
from statefulspark.coordinator.returns import Told
from statefulspark.coordinator.slot_actions import SlotActions
from statefulspark.coordinator.slot_calls import SlotCalls
from statefulspark.coordinator.slot_crashes import CrashWatch
from statefulspark.coordinator.slot_table import SlotTable
from statefulspark.coordinator.snapshot_requests import SnapshotRequests
from statefulspark.coordinator.state_queries import StateQueries
from statefulspark.coordinator.view import CoordinatorView, view_of
from statefulspark.errors import FencedError, SlotCrashedError, StatefulSparkError
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.rpc.certificates import CertificateFolder
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.slots import SnapshotDone
from statefulspark.state.registry import StateRegistry
from statefulspark.storage.storage_settings import StorageSettings

_log = structlog.get_logger("statefulspark.coordinator")


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The coordinator's address."""

    host: str | None
    """Address to listen on; None for a Unix socket: all processes of the job are on this machine."""
    secret: str = field(repr=False)
    """The job's secret; calls without it are refused."""
    certificates: CertificateFolder | None = None
    """Needed with ``host``: nothing crosses machines in clear."""


class Coordinator:
    """The driver's side of the batch protocol; one per attempt.

    Attributes:
        endpoint: Where slots and exchange tasks reach it.
        query: Prepares for a query's start and end; pauses and drains it.
        slots: Stops the slots, and replaces them when the job is rescaled.
        snapshots: Takes checkpoints and savepoints on request.
        canonical: Takes canonical savepoints on request.
        memory: Shows and changes how slots divide their managed memory.
        going_back: Brings the job back to its last checkpoint if slots lost what is stored nowhere.
        queries: Reads single keys of the job's state.
    """

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
        storage: StorageSettings | None = None,
        checkpointed: Collection[str] = (),
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
            storage: how a process of the driver's own reaches storage.
            checkpointed: uids of the steps whose function keeps operator state.
            now_ms: the clock that processing times come from, in milliseconds since the epoch; tests set their own.
        """
        self._durable = durable
        self._batches = batches
        self._states = states
        self._dry_runs = dry_runs
        self._fatal: StatefulSparkError | None = None
        self._on_return: Told = lambda *_: None
        self._lock = threading.RLock()
        self._calls = SlotCalls(listen.secret, listen.certificates)
        self._crashes = CrashWatch()
        self._operator_states = OperatorDistribution(durable=durable, batches=batches, states=states, checkpointed=checkpointed)
        self.slots = JobSlots(
            slots, calls=self._calls, crashes=self._crashes, batches=batches, operator_states=self._operator_states, lock=self._lock
        )
        self.snapshots = SnapshotRequests(self._lock, durable.savepoint_target)
        self.memory = RunningMemory(memory, self.slots.all)
        self._completion = self._new_completion(recovered)
        wanted = GoingBackWanted()
        self.query = self._new_query_lifecycle(now_ms, wanted)
        self._checkpoints = self._new_checkpoint_schedule(times)
        self._checkpoints.stop_while(lambda: bool(wanted))
        self.going_back = self._new_going_back(wanted, now_ms)
        self.canonical = CanonicalSavepoints(
            durable=durable, requests=self.snapshots, storage=storage or StorageSettings(), ended=self._checkpoints.converted
        )
        self.queries = StateQueries(
            batches=batches,
            states=states,
            slots=self.slots.table,
            calls=self._calls,
            pipeline=lambda: durable.pipeline,
            max_parallelism=durable.max_parallelism,
        )
        restores = RestoreFailures(self._durable, self._batches, self._fail, self._returned)
        preparation = self._new_preparation(restores)
        self._batch_actions = self._new_batch_actions(now_ms, preparation)
        actions = (
            *self._batch_actions.actions(),
            *self._new_slot_actions(memory, restores, preparation).actions(),
            SnapshotDone.served_by(self._snapshot_done),
        )
        self._service = FlightListener(listen.host, listen.secret, actions, certificates=listen.certificates)
        self.endpoint = Endpoint(location=self._service.location, secret=listen.secret, certificates=listen.certificates)

    def _new_completion(self, recovered: BatchParameters | None) -> Completion:
        return Completion(
            batches=self._batches,
            changelogs=self._durable.changelogs,
            dry_runs=self._dry_runs,
            slots=self.slots.table,
            calls=self._calls,
            states=self._states,
            operator_states=self._operator_states,
            max_parallelism=self._durable.max_parallelism,
            recovered=recovered,
            inline_bytes=self._durable.inline_limits.changelog_bytes,
            lock=self._lock,
            fail=self._fail,
        )

    def _new_going_back(self, wanted: GoingBackWanted, now_ms: Callable[[], int]) -> GoingBack:
        return GoingBack(
            wanted,
            durable=self._durable,
            batches=self._batches,
            completion=self._completion,
            dry_runs=self._dry_runs,
            checkpoints=self._checkpoints,
            operator_states=self._operator_states,
            crashes=self._crashes,
            lock=self._lock,
            now_ms=now_ms,
            told=self._returned,
        )

    def _new_query_lifecycle(self, now_ms: Callable[[], int], wanted: GoingBackWanted) -> QueryLifecycle:
        return QueryLifecycle(
            durable=self._durable,
            batches=self._batches,
            slots=self.slots.table,
            dry_runs=self._dry_runs,
            completion=self._completion,
            lock=self._lock,
            now_ms=now_ms,
            interrupt=wanted.refuse,
        )

    def _new_checkpoint_schedule(self, times: CheckpointTimes) -> CheckpointSchedule:
        return CheckpointSchedule(
            durable=self._durable,
            batches=self._batches,
            states=self._states,
            dry_runs=self._dry_runs,
            times=times,
            requests=self.snapshots,
            lock=self._lock,
            slots=self.slots,
            fenced=self._fail,
        )

    def _new_preparation(self, restores: RestoreFailures) -> RestorePreparation:
        return RestorePreparation(
            lock=self._lock,
            slots=self.slots.table,
            durable=self._durable,
            completion=self._completion,
            operator_states=self._operator_states,
            restores=restores,
        )

    def _new_batch_actions(self, now_ms: Callable[[], int], preparation: RestorePreparation) -> BatchActions:
        return BatchActions(
            durable=self._durable,
            batches=self._batches,
            states=self._states,
            operator_states=self._operator_states,
            preparation=preparation,
            slots=self.slots.table,
            dry_runs=self._dry_runs,
            query=self.query,
            completion=self._completion,
            checkpoints=self._checkpoints,
            calls=self._calls,
            crashes=self._crashes,
            lock=self._lock,
            now_ms=now_ms,
            fatal=lambda: self._fatal,
            fail=self._fail,
        )

    def _new_slot_actions(self, memory: MemoryTuner, restores: RestoreFailures, preparation: RestorePreparation) -> SlotActions:
        return SlotActions(
            lock=self._lock,
            slots=self.slots.table,
            durable=self._durable,
            batches=self._batches,
            states=self._states,
            operator_states=self._operator_states,
            memory=memory,
            completion=self._completion,
            restores=restores,
            preparation=preparation,
            going_back=self.going_back,
            fail=self._fail,
        )

    @property
    def fatal(self) -> StatefulSparkError | None:
        """The first error that ends the job, None while there is none."""
        return self._fatal

    def view(self) -> CoordinatorView:
        """Return a copy of what the coordinator knows now; never blocks on storage or slots."""
        return view_of(
            durable=self._durable,
            batches=self._batches,
            states=self._states,
            slots=self.slots.table(),
            dry_runs=self._dry_runs,
            checkpoints=self._checkpoints,
            memory=self.memory.tuner,
        )

    def report_to(
        self,
        *,
        checkpoint_ended: SnapshotEnded,
        slot_crashed: Callable[[SlotCrashedError], None],
        returned: Told,
    ) -> None:
        """Report every outcome of a checkpoint, a slot that dies again and again at the same rows, and each return to an earlier checkpoint."""
        self._checkpoints.on_checkpoint(checkpoint_ended)
        self._crashes.on_failure(slot_crashed)
        self._on_return = returned

    def _returned(self, message: str, reason: StatefulSparkError | None) -> None:
        self._on_return(message, reason)

    def delete_state(self) -> None:
        """Delete the state of the cancelled job; see `DurableJob.delete_checkpoints`."""
        self._durable.delete_checkpoints()

    def poll(self) -> bool:
        """Called a few times a second: checkpoints of an idle query, and those that take too long.

        Returns:
            True if it is time for another query: the dry run of a batch, or the real query after it.
        """
        self._checkpoints.expire()
        with self._lock:
            # First of all: whether a checkpoint is due depends on what is committed.
            if self._completion.finish() and self._checkpoints.is_due() and self.slots.table().all_ready():
                self._checkpoints.start_if_due()
            return self._dry_runs.due()

    def needs_checkpoint(self) -> bool:
        """True if the next driver would go back although this one ends in good order: committed batches left no changelogs, and no checkpoint has them."""
        with self._lock:
            return bool(self._batches.lacking)

    def check_fence(self) -> None:
        """Notice a newer attempt although no batch runs; trouble with storage is left to the next batch."""
        try:
            self._durable.fence.check()
        except FencedError as error:
            self._fatal = error
        except StatefulSparkError as error:
            _log.info("could not check for a newer attempt", error=str(error)[:200])

    def _snapshot_done(self, done: SnapshotDone) -> None:
        self.slots.table().check(done.slot, done.epoch)
        self._checkpoints.slot_done(done)

    def _fail(self, error: StatefulSparkError) -> None:
        if self._fatal is None:
            self._fatal = error

    def close(self) -> None:
        """Stop serving."""
        self._checkpoints.close()
        self.canonical.close()
        self.queries.close()
        self._calls.close()
        self._service.shutdown()
