"""Answers the requests of slots: registration, readiness, failed restores, heartbeats, state ids and missed changelogs.

A registration may need all operator state of the
job, which takes long to read: that happens without the lock of the inbox, so that batches, checkpoints and the tick source do not wait for storage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from statefulspark.checkpoint.restore.progress import RestoredBytes
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.going_back import GoingBack
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.slots.memory_tuning import MemoryTuner
from statefulspark.coordinator.slots.operator_parts import reported_lists
from statefulspark.coordinator.slots.operator_states import OperatorDistribution
from statefulspark.coordinator.slots.restore_failures import RestoreFailures
from statefulspark.coordinator.slots.restore_preparation import RestorePreparation
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.errors import NotRestorableError, StatefulSparkError
from statefulspark.logs.forwarding import RECORDS_MAX, show_forwarded
from statefulspark.rpc.codec import Action
from statefulspark.rpc.messages.batches import SlotUnreachable, Wait
from statefulspark.rpc.messages.heartbeat import Heartbeat, HeartbeatAnswer, Restoring
from statefulspark.rpc.messages.slots import (
    Changelogs,
    ChangelogsAnswer,
    Ready,
    Register,
    RegisterAnswer,
    RegisterState,
    RegisterStateAnswer,
    Reopened,
    ReopenedAnswer,
    RestoreFailed,
    RestoreFailedAnswer,
    StoreDamaged,
)
from statefulspark.state.registry import StateRegistry

_log = structlog.get_logger("statefulspark.coordinator")

_PREPARED_S = 15.0
"""For how long a registration waits, for the preparation and again for the lock, before the slot is told to ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotActions:
    """The coordinator's side of the requests that slots make.

    Attributes:
        slots: Returns the table of now, which a rescale replaces.
        fail: Ends the job.
        preparation: Gets ready what slots restore.
        going_back: Asked whether a slot can be brought to where the job is.
    """

    inbox: Inbox
    slots: Callable[[], SlotTable]
    durable: DurableJob
    batches: BatchLog
    states: StateRegistry
    operator_states: OperatorDistribution
    memory: MemoryTuner
    restores: RestoreFailures
    preparation: RestorePreparation
    going_back: GoingBack
    fail: Callable[[StatefulSparkError], None]

    def actions(self) -> tuple[Action, ...]:
        """Return the requests that slots may send."""
        return (
            Register.served_by(self._register),
            Reopened.served_by(self._reopened),
            Ready.served_by(self._ready),
            RestoreFailed.served_by(self._restore_failed),
            Restoring.served_by(self._restoring),
            Heartbeat.served_by(self._heartbeat),
            StoreDamaged.served_by(self._store_damaged),
            SlotUnreachable.served_by(self._slot_unreachable),
            RegisterState.served_by(self._register_state),
            Changelogs.served_by(self._changelogs),
        )

    def _register(self, request: Register) -> RegisterAnswer | Wait | None:
        # Spark may be slow to answer, so no lock is held yet.
        executors = self.slots().count_executors()
        prepared = self.preparation.wait(_PREPARED_S)
        if prepared is False:
            return None
        if prepared is None or not self.inbox.lock.acquire(timeout=_PREPARED_S):
            return None if self.slots().stopping else Wait(reason="storage")
        try:
            # Before the incarnation is numbered, a batch that is about to be committed is: to adopt one may retire all incarnations.
            if not self.inbox.wait(lambda life: life.may_register, _PREPARED_S):
                return Wait(reason="storage")
            if self.preparation.source() is not None:
                return None  # slots or state have changed since operator state was read
            answer = self._numbered(request, executors)
            parts = self.operator_states.parts_of(request.slot)
        finally:
            self.inbox.lock.release()
        return replace(answer, operator_state=parts.encoded()) if answer is not None and parts is not None else answer

    def _numbered(self, request: Register, executors: int) -> RegisterAnswer | None:
        """Begin an incarnation; None if the executor has its share of slots. The caller holds the lock and adds operator state."""
        index, table = request.slot, self.slots()
        if not self.going_back.slot_starts(table.get(index), request.executor):
            return None
        before = table.get(index)
        epoch = table.register(index, request.executor, request.host, request.pid, executors=executors)
        if epoch is None:
            return None
        self.going_back.slot_died(before, request.executor)
        return RegisterAnswer(
            epoch=epoch,
            attempt=table.get(index).attempt,
            base=self.durable.base_url,
            restore=self.durable.restore_plan(index, len(table.all()), self.batches),
            expected={uid: self.batches.expected_batch(uid, index) for uid in self.batches.delays_ms},
            memory=self.memory.tuning,
            processing_time_ms=self.batches.committed_time_ms,
            operator_state=None,
        )

    def _reopened(self, request: Reopened) -> ReopenedAnswer:
        return ReopenedAnswer(attempt=self.slots().reopened(request.slot, request.epoch))

    def _ready(self, request: Ready) -> None:
        reports = reported_lists(request.slot, request.operator_state)
        with self.inbox.lock:
            self.slots().check(request.slot, request.epoch)
            self.operator_states.report(request.slot, reports)
            for uid, timers in request.timers.items():
                self.batches.timers.setdefault((uid, request.slot), timers)
        self.slots().ready(request.slot, request.epoch, request.location, request.unix)
        if self.slots().all_served():
            self._check_states()

    def _check_states(self) -> None:
        """Every slot has opened its functions: a restored state that none declares has been renamed, which ends the job, or stays behind."""
        try:
            for left in self.states.all_opened():
                _log.warning("restored state is no longer declared; it is kept but unused", uid=left.uid, state=left.name)
        except NotRestorableError as error:
            self.fail(error)

    def _restore_failed(self, request: RestoreFailed) -> RestoreFailedAnswer:
        self.slots().check(request.slot, request.epoch)
        with self.inbox.lock:
            return RestoreFailedAnswer(again=self.restores.try_again(request.error, request.base))

    def _restoring(self, request: Restoring) -> None:
        progress = RestoredBytes(
            downloaded_bytes=request.downloaded_bytes, local_bytes=request.local_bytes, total_bytes=request.total_bytes
        )
        self.slots().restoring(request.slot, request.epoch, progress)

    def _heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        self.slots().heartbeat(request.slot, request.epoch, request.report)
        show_forwarded(request.slot, request.logs[:RECORDS_MAX])
        table = self.slots()
        return HeartbeatAnswer(
            stop=table.stopping,
            keep_files=table.keep_files,
            memory=self.memory.tuning,
            processing_time_ms=self.batches.committed_time_ms,
        )

    def _store_damaged(self, request: StoreDamaged) -> None:
        self.slots().retire(request.slot, request.epoch, f"its local state cannot be used ({request.error})")

    def _slot_unreachable(self, request: SlotUnreachable) -> None:
        self.slots().lose(request.slot, request.epoch)

    def _register_state(self, request: RegisterState) -> RegisterStateAnswer:
        try:
            committed_ms = self.batches.committed_time_ms
            # A batch that runs again, at the time of its record, may be the first one, and may turn out to be committed.
            self.states.reached_ms = self.batches.processing_time_ms if committed_ms is None else committed_ms
            state = self.states.register(request.uid, request.name, request.kind, request.description)
            return RegisterStateAnswer(state=state, step_states=tuple(each for each in self.states.states() if each.uid == request.uid))
        except NotRestorableError as error:
            # Also where a function declares it only in the middle of a batch: trying that batch again cannot help.
            self.fail(error)
            raise

    def _changelogs(self, request: Changelogs) -> ChangelogsAnswer:
        self.going_back.changelogs_wanted(request.key_groups.first, request.after, request.until)
        found = self.batches.changelogs_of(request.uid, request.key_groups, request.after, request.until)
        return ChangelogsAnswer(changelogs=tuple(found))
