"""The coordinator: numbers batches, hands slots to exchanges, collects acknowledgements, and lets checkpoints start between batches.

It serves slots, exchange tasks and the tick source over Flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import structlog

from statefulspark.coordinator.batches.actions import BatchActions, Serving
from statefulspark.coordinator.batches.adoption import Adoption
from statefulspark.coordinator.batches.completion import Completion
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.batches.reports import BatchReports
from statefulspark.coordinator.batches.starts import BatchStarts
from statefulspark.coordinator.core.life import BatchParameters, Life
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.going_back import GoingBack, GoingBackWanted
from statefulspark.coordinator.durable.returns import Told
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.coordinator.first_error import FirstError
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.query.lifecycle import QueryLifecycle
from statefulspark.coordinator.query.state_queries import StateQueries
from statefulspark.coordinator.slots.actions import SlotActions
from statefulspark.coordinator.slots.calls import SlotCalls
from statefulspark.coordinator.slots.crashes import CrashWatch
from statefulspark.coordinator.slots.job_slots import JobSlots
from statefulspark.coordinator.slots.memory_tuning import MemoryTuner, RunningMemory
from statefulspark.coordinator.slots.operator_states import OperatorDistribution
from statefulspark.coordinator.slots.restore_failures import RestoreFailures
from statefulspark.coordinator.slots.restore_preparation import RestorePreparation
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.coordinator.snapshots.canonical import CanonicalSavepoints
from statefulspark.coordinator.snapshots.pending import CheckpointTimes
from statefulspark.coordinator.snapshots.requests import SnapshotRequests
from statefulspark.coordinator.snapshots.schedule import CheckpointSchedule, SnapshotEnded
from statefulspark.coordinator.view import CoordinatorView, view_of
from statefulspark.errors import FencedError, SlotCrashedError, StatefulSparkError
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.keygroups import KeyGroupRange, key_group_range
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
        location: SparkLocation,
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
            location: Spark's local checkpoint location, with the state of its own steps.
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
        self._location = location
        self._failure = failure = FirstError()
        self._on_return: Told = lambda *_: None
        self._inbox = inbox = Inbox(
            Life(
                uids=frozenset(batches.delays_ms),
                parallelism=len(slots.all()),
                group_changelogs=durable.inline_limits.changelog_bytes > 0,
                committed=batches.committed,
                again=recovered,
            )
        )
        self._lock = inbox.lock
        self._calls = SlotCalls(listen.secret, listen.certificates)
        self._crashes = CrashWatch()
        self._operator_states = OperatorDistribution(durable=durable, batches=batches, states=states, checkpointed=checkpointed)
        self.slots = JobSlots(
            slots, calls=self._calls, crashes=self._crashes, batches=batches, operator_states=self._operator_states, inbox=inbox
        )
        self.snapshots = SnapshotRequests(self._lock, durable.savepoint_target)
        self.memory = RunningMemory(memory, self.slots.all)
        self._completion = self._new_completion()
        wanted = GoingBackWanted()
        self.query = QueryLifecycle(
            batches=batches,
            slots=self.slots.table,
            location=location,
            completion=self._completion,
            inbox=inbox,
            now_ms=now_ms,
            interrupt=wanted.refuse,
        )
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
        restores = RestoreFailures(self._durable, self._batches, failure.fail, self._returned)
        preparation = RestorePreparation(
            inbox=inbox,
            slots=self.slots.table,
            durable=durable,
            completion=self._completion,
            operator_states=self._operator_states,
            restores=restores,
        )
        self._starts = BatchStarts(
            inbox,
            durable=durable,
            batches=batches,
            location=location,
            operator_states=self._operator_states,
            slots=self.slots,
            query=self.query,
            completion=self._completion,
            checkpoints=self._checkpoints,
            now_ms=now_ms,
            failure=failure,
        )
        self._batch_actions = BatchActions(
            inbox,
            durable=durable,
            batches=batches,
            slots=self.slots,
            starts=self._starts,
            query=self.query,
            reports=self._completion.reports,
            serving=Serving(
                states=states, operator_states=self._operator_states, preparation=preparation, crashes=self._crashes, failure=failure
            ),
        )
        actions = (
            *self._batch_actions.actions(),
            *self._new_slot_actions(memory, restores, preparation).actions(),
            SnapshotDone.served_by(self._snapshot_done),
        )
        self._service = FlightListener(listen.host, listen.secret, actions, certificates=listen.certificates)
        self.endpoint = Endpoint(location=self._service.location, secret=listen.secret, certificates=listen.certificates)

    def _new_completion(self) -> Completion:
        changelogs = self._durable.changelogs

        def key_groups(slot: int) -> KeyGroupRange:
            return key_group_range(slot, len(self.slots.all()), self._durable.max_parallelism)

        reports = BatchReports(self._inbox, self._batches, changelogs, self._operator_states, key_groups)
        adoption = Adoption(
            changelogs=changelogs,
            batches=self._batches,
            states=self._states,
            operator_states=self._operator_states,
            slots=self.slots.table,
            calls=self._calls,
            key_groups=key_groups,
        )
        return Completion(
            self._inbox,
            batches=self._batches,
            location=self._location,
            reports=reports,
            adoption=adoption,
            operator_states=self._operator_states,
            fail=self._failure.fail,
        )

    def _new_going_back(self, wanted: GoingBackWanted, now_ms: Callable[[], int]) -> GoingBack:
        return GoingBack(
            wanted,
            durable=self._durable,
            batches=self._batches,
            completion=self._completion,
            location=self._location,
            checkpoints=self._checkpoints,
            operator_states=self._operator_states,
            crashes=self._crashes,
            inbox=self._inbox,
            now_ms=now_ms,
            told=self._returned,
        )

    def _new_checkpoint_schedule(self, times: CheckpointTimes) -> CheckpointSchedule:
        return CheckpointSchedule(
            durable=self._durable,
            batches=self._batches,
            states=self._states,
            location=self._location,
            times=times,
            requests=self.snapshots,
            lock=self._lock,
            slots=self.slots,
            fenced=self._failure.fail,
        )

    def _new_slot_actions(self, memory: MemoryTuner, restores: RestoreFailures, preparation: RestorePreparation) -> SlotActions:
        return SlotActions(
            inbox=self._inbox,
            slots=self.slots.table,
            durable=self._durable,
            batches=self._batches,
            states=self._states,
            operator_states=self._operator_states,
            memory=memory,
            restores=restores,
            preparation=preparation,
            going_back=self.going_back,
            fail=self._failure.fail,
        )

    @property
    def fatal(self) -> StatefulSparkError | None:
        """The first error that ends the job, None while there is none."""
        return self._failure.error

    def view(self) -> CoordinatorView:
        """Return a copy of what the coordinator knows now; never blocks on storage or slots."""
        return view_of(
            durable=self._durable,
            batches=self._batches,
            states=self._states,
            slots=self.slots.table(),
            dry_run=self._inbox.life.dry.batch,
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
        # First of all: whether a checkpoint is due depends on what is committed.
        if self._completion.finish() and self._checkpoints.is_due() and self.slots.table().all_ready():
            self._starts.start_checkpoint()
        with self._lock:
            return self._inbox.life.dry_run_due(self._location.facts(self._inbox.life))

    def needs_checkpoint(self) -> bool:
        """True if the next driver would go back although this one ends in good order: committed batches left no changelogs, and no checkpoint has them."""
        with self._lock:
            return bool(self._batches.lacking)

    def check_fence(self) -> None:
        """Notice a newer attempt although no batch runs; trouble with storage is left to the next batch."""
        try:
            self._durable.fence.check()
        except FencedError as error:
            self._failure.fail(error)
        except StatefulSparkError as error:
            _log.info("could not check for a newer attempt", error=str(error)[:200])

    def _snapshot_done(self, done: SnapshotDone) -> None:
        self.slots.table().check(done.slot, done.epoch)
        self._checkpoints.slot_done(done)

    def close(self) -> None:
        """Stop serving."""
        self._checkpoints.close()
        self.canonical.close()
        self.queries.close()
        self._calls.close()
        self._service.shutdown()
