"""GoingBack: a running job whose slots have lost the state after batches without changelogs returns to the last state that is stored.

In checkpointing mode ``at-least-once``, the state after the newest batches exists in the slots only. When one slot starts again, it cannot be
brought there, so all slots go back together with Spark's offsets, as they would with a new driver (`checkpoint.lineage.going_back`). The
job stops its query and all slots, calls `run`, and starts them again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from statefulspark import failpoints
from statefulspark.coordinator.batches.completion import Completion
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.core.actions import GoBack
from statefulspark.coordinator.core.events import MustGoBack, WentBack
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.recovery import batch_log, recovered_batch, restore_location
from statefulspark.coordinator.durable.returns import Told, went_back
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.slots.crashes import CrashWatch
from statefulspark.coordinator.slots.operator_states import OperatorDistribution
from statefulspark.coordinator.slots.state import Slot
from statefulspark.coordinator.snapshots.schedule import CheckpointSchedule
from statefulspark.errors import ConflictError, UnavailableError

_log = structlog.get_logger("statefulspark.coordinator")
NOTICE: Final = "a slot was lost, and the job goes back to its last checkpoint. Repeat the command"


class GoingBackWanted:
    """True if the job must go back before any batch, checkpoint or command can go on. Set by many threads, without a lock of the coordinator's."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason = ""
        """Reason of the last request."""

    def __bool__(self) -> bool:
        return self._event.is_set()

    def ask(self, why: str, slot: int) -> bool:
        """Ask for it; False if that has been done."""
        if self._event.is_set():
            return False
        self.reason = f"slot {slot}: {why}"
        self._event.set()
        _log.warning("the job goes back to its last checkpoint, and rows since are processed again", slot=slot, why=why)
        return True

    def refuse(self) -> None:
        """Raise ConflictError if the job must go back."""
        if self._event.is_set():
            raise ConflictError(NOTICE)

    def done(self) -> None:
        """The job has gone back."""
        self._event.clear()


class GoingBack:
    """Brings the coordinator's parts back to the last state that is stored.

    Args:
        wanted: Set while it must be done.
        durable: The job's folder in storage.
        batches: The job's batches, guarded by the inbox.
        completion: Decides about the batch that runs.
        location: Spark's local checkpoint location.
        checkpoints: Of the job.
        operator_states: The distribution of operator state, guarded by the inbox.
        crashes: Counts slots that die on the way.
        inbox: Of the core.
        now_ms: The clock that processing times come from.
        told: Told of each time.
    """

    def __init__(  # noqa: PLR0913  one argument per part of the coordinator
        self,
        wanted: GoingBackWanted,
        *,
        durable: DurableJob,
        batches: BatchLog,
        completion: Completion,
        location: SparkLocation,
        checkpoints: CheckpointSchedule,
        operator_states: OperatorDistribution,
        crashes: CrashWatch,
        inbox: Inbox,
        now_ms: Callable[[], int],
        told: Told,
    ) -> None:
        self.wanted = wanted
        self._durable = durable
        self._batches = batches
        self._completion = completion
        self._location = location
        self._checkpoints = checkpoints
        self._operator_states = operator_states
        self._crashes = crashes
        self._inbox = inbox
        self._now_ms = now_ms
        self._told = told

    def slot_starts(self, before: Slot, executor: str) -> bool:
        """A new incarnation of a slot wants to register. False if the job must go back first. The caller holds the lock.

        Args:
            before: The slot as it was.
            executor: Where the new process runs.
        """
        if self.wanted:
            return False
        if self._batches.can_restore(before.index):
            return True
        if self.wanted.ask("it starts again, and batches since the last checkpoint have no changelogs", before.index):
            self.slot_died(before, executor)
        return False

    def slot_died(self, before: Slot, executor: str) -> None:
        """Count the end of an incarnation of a slot whose place one on ``executor`` takes. The caller holds the lock."""
        batches = self._batches
        self._crashes.ended(before.index, executor, epoch=before.epoch, committed=batches.committed, position=batches.position)

    def changelogs_wanted(self, slot: int, after: int, until: int) -> None:
        """A slot wants to catch up.

        Raises:
            UnavailableError: With batches that left no changelogs, so the job goes back.
        """
        if self._batches.lacks(after, until):
            self.wanted.ask(f"it has lost what batch {until} changed", slot)
            raise UnavailableError(f"batch {until} has no changelogs; the job goes back to its last checkpoint")

    def run(self) -> None:
        """Go back; the query and all slots are stopped.

        Raises:
            CorruptDataError: Nothing that is left can be restored.
            FencedError: A newer attempt runs the job.
            UnavailableError: Storage does not answer, or a checkpoint is being published; call again.
        """
        files, log = self._location.files, self._batches
        with self._inbox.between_steps():
            before = log.committed
            (step,) = self._inbox.feed(MustGoBack(files.planned_batch()))
        if not isinstance(step, GoBack):
            raise UnavailableError("a batch is about to begin or to end")
        with self._inbox.step(step.number):
            if not self._checkpoints.abandon():
                raise UnavailableError("a checkpoint is being published")
            lineage = self._durable.go_back(step.used, self._now_ms())
            failpoints.reach("driver.jumped")
            files.clear()
            restore_location(files, lineage, self._durable.pipeline, may_drop=True)  # it was accepted when the driver started
            with self._inbox.lock:
                log.go_back(batch_log(lineage, log.delays_ms, log.after, log.idle_after_ms, log.watermark_by))
                self._completion.reports.begin()
                self._operator_states.forget()
                self._inbox.feed(WentBack(step.number, log.committed, recovered_batch(lineage, log)))
        # A jump has no rows, so it is committed at once: tasks of the old query that still run are refused by their number.
        self._completion.finish()
        self._checkpoints.go_back()
        _log.warning(
            "went back", base=self._durable.base_url, abandoned_after=lineage.committed_batch, until=before, next_batch=log.committed + 1
        )
        self._told(went_back(lineage, until=before, why=self.wanted.reason), None)
        self.wanted.done()
