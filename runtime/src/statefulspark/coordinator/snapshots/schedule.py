"""The job's checkpoints over time: when one is due, and how each one ended.

It shares the lock of the inbox; see there for the order in which locks may be nested.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import structlog

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import SlotState
from statefulspark.checkpoint.write.inline import check_inline
from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.batches.totals import SnapshotTotals
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.coordinator.ongoing_work import PendingSnapshot
from statefulspark.coordinator.slots.job_slots import JobSlots
from statefulspark.coordinator.slots.state import READY, RESTORING, Slot
from statefulspark.coordinator.snapshots.canceled import CanceledSnapshots
from statefulspark.coordinator.snapshots.pending import CheckpointCoordinator, CheckpointTimes, PendingCheckpoint, SlotLostError, info_of
from statefulspark.coordinator.snapshots.requests import SnapshotRequests
from statefulspark.errors import FencedError, StatefulSparkError, UnavailableError
from statefulspark.rpc.messages.slots import SnapshotDone
from statefulspark.state.registry import StateRegistry

_log = structlog.get_logger("statefulspark.checkpoints")
_CLEAN_PAUSE_S = 30.0
"""Least pause between two looks at the folder because a checkpoint is too old: it may have to stay for a slot that restores."""
_AFTER_LOSS_S = 2.0
"""Pause before the next checkpoint after one that a lost slot has canceled: deaths may come faster than the interval ends."""

SnapshotEnded = Callable[[CheckpointInfo | StatefulSparkError, bool, SavepointFormat], None]
"""Takes the outcome of a checkpoint or savepoint, True for a savepoint, and the format that was wanted."""


class CheckpointSchedule:
    """Starts checkpoints at batch boundaries and keeps what came of them.

    Attributes:
        last_checkpoint: The newest complete checkpoint of this driver.
        last_savepoint: The newest complete savepoint of this driver.
        totals: What they add up to, by ``checkpoint`` and ``savepoint``.
    """

    def __init__(
        self,
        *,
        durable: DurableJob,
        batches: BatchLog,
        states: StateRegistry,
        location: SparkLocation,
        times: CheckpointTimes,
        requests: SnapshotRequests,
        lock: threading.RLock,
        slots: JobSlots,
        fenced: Callable[[FencedError], None],
    ) -> None:
        """Prepare; nothing is taken yet.

        Args:
            durable: the job's folder in storage.
            batches: the job's batches, guarded by ``lock``.
            states: state ids.
            location: Spark's local checkpoint location and the state of its own steps there.
            times: when checkpoints are taken.
            requests: checkpoints and savepoints that callers wait for.
            lock: that of the inbox.
            slots: the job's, which are asked for their part of each snapshot.
            fenced: told when publishing found that a newer attempt runs the job.
        """
        self.last_checkpoint: CheckpointInfo | None = None
        self.last_savepoint: CheckpointInfo | None = None
        self.totals = {"checkpoint": SnapshotTotals(), "savepoint": SnapshotTotals()}
        self._durable = durable
        self._batches = batches
        self._states = states
        self._files = location.files
        self._spark_state = location.state
        self._times = times
        self._lock = lock
        self._slots = slots
        self._fenced = fenced
        self._told: SnapshotEnded | None = None
        self._requests = requests
        self._due_s = time.monotonic() + (times.interval_s or 0.0)
        self._last_ended_s = float("-inf")
        self._last_cleaned_s = float("-inf")
        self._stopped: Callable[[], bool] = lambda: False
        self._checkpointed_batch = batches.base
        self._canceled = CanceledSnapshots(slots.cancel_snapshot)
        self._snapshots = CheckpointCoordinator(
            call_slot=slots.snapshot, publish=self._publish, finished=self._finished, timeout_s=times.timeout_s
        )

    def on_checkpoint(self, told: SnapshotEnded) -> None:
        """Tell ``told`` of every outcome."""
        self._told = told

    def stop_while(self, stopped: Callable[[], bool]) -> None:
        """Start none while ``stopped`` returns True."""
        self._stopped = stopped

    def go_back(self) -> None:
        """The job continues from its base, and no slot runs. The next checkpoint is due once a batch is committed: rows are not repeated twice."""
        self._checkpointed_batch = self._batches.committed
        self._due_s = time.monotonic()

    def abandon(self) -> bool:
        """Cancel the checkpoint in progress. False if it is being published; then it may become the base."""
        return self._snapshots.abandon()

    def expire(self) -> None:
        """Cancel a checkpoint that takes too long or whose slots are gone, and delete what is not needed any more, also while the job is idle."""
        self._canceled.poll()
        self._snapshots.expire(gone={slot.index: slot.epoch for slot in self._slots.all() if slot.state == READY})
        now_s = time.monotonic()
        if now_s - self._last_cleaned_s >= _CLEAN_PAUSE_S and self._durable.retention_due:
            self._last_cleaned_s = now_s
            threading.Thread(target=self._clean, name="retention", daemon=True).start()

    def is_due(self) -> bool:
        """True if a checkpoint was requested or the interval is over."""
        return bool(self._requests) or self._interval_due()

    def _interval_due(self) -> bool:
        now = time.monotonic()
        return (
            self._times.interval_s is not None
            and now >= self._due_s
            and now - self._last_ended_s >= self._times.min_pause_s
            and self._batches.committed > self._checkpointed_batch
            and self._slots.table().all_ready()
        )

    def start_if_due(self) -> None:
        """Start a checkpoint of the committed batch, if one is due. No batch runs or ends meanwhile, and the caller does not hold the lock."""
        if self._stopped() or self._snapshots.running or not self.is_due():
            return
        log = self._batches
        self._durable.capture_state(self._spark_state, log.committed)
        with self._lock:
            request = self._requests.next()
        slots = self._slots.all()
        is_savepoint = request is not None and request.savepoint is not None
        if not is_savepoint:
            self._due_s = time.monotonic() + (self._times.interval_s or 0.0)
        progress = PendingCheckpoint(
            checkpoint_id=self._durable.next_checkpoint_id(),
            batch=log.committed,
            request=request,
            started_s=time.monotonic(),
            created_ms=int(time.time() * 1000),
            savepoint_folder=self._durable.savepoint_folder() if is_savepoint else None,
            base_checkpoint_id=self._durable.reusable_checkpoint_id,
            full=is_savepoint or not self._durable.incremental,
            frame={
                "files": self._files.all_files(batch=log.committed),
                "spark_state": self._spark_state.freeze(),
                "watermarks": log.event_times.of_input(0),
                "second_watermarks": log.event_times.of_input(1),
                "event_times_by_value": log.event_times.by_value(),
                "batch_watermarks": log.chained_watermarks(),
                "processing_time_ms": log.processing_time_ms,
                "parallelism": len(slots),
            },
            limits=self._durable.inline_limits,
            waiting={slot.index for slot in slots},
            epochs={slot.index: slot.epoch for slot in slots},
        )
        expected = {slot.index: {uid: log.expected_batch(uid, slot.index) for uid in log.delays_ms} for slot in slots}
        self._snapshots.start(progress, slots, expected)

    def pending(self, slots: Iterable[Slot]) -> PendingSnapshot | None:
        """The snapshot in progress and its per-slot progress. Never blocks."""
        return self._snapshots.pending(slots)

    def slot_done(self, done: SnapshotDone) -> None:
        """A slot's background part has ended."""
        self._snapshots.slot_done(done)
        self._canceled.reported(done)

    def _publish(self, progress: PendingCheckpoint, slots: tuple[SlotState, ...]) -> CheckpointInfo:
        states = self._states.states()
        check_inline(progress.checkpoint_id, slots, progress.state_bytes, states, progress.limits)
        metadata, path = self._durable.publish(progress, slots, [state.to_json() for state in states])
        if progress.age_s > self._times.timeout_s:
            # Its driver was frozen. Another driver may have deleted its files as unreferenced before it was published.
            self._durable.withdraw(metadata, path)
            progress.sealed = progress.savepoint is None  # the _metadata of a savepoint is gone, and its files go too
            raise UnavailableError(f"checkpoint {progress.checkpoint_id} took longer than {self._times.timeout_s:.0f} s")
        info = info_of(metadata, path, sync_ms=progress.sync_ms, uploaded_bytes=progress.uploaded_bytes)
        if progress.request is not None and progress.request.unpublished:
            progress.request.origin.append(StoredCheckpoint(self._durable.store, paths.folder_of(path)[1], metadata))
            return info
        with self._lock:
            self._durable.completed_checkpoint(metadata, info)
            if metadata.kind == "checkpoint":
                self._checkpointed_batch = max(self._checkpointed_batch, info.batch)
                self._batches.rebase(info.batch)
        return info

    def _finished(self, progress: PendingCheckpoint, outcome: CheckpointInfo | StatefulSparkError) -> None:
        if progress.savepoint is None:
            self._last_ended_s = time.monotonic()
        if isinstance(outcome, CheckpointInfo) and progress.request is not None and progress.unpublished:
            with self._lock:  # its caller may just stop waiting
                progress.request.finish(outcome)
                is_wanted = not progress.request.withdrawn.is_set()
            if not is_wanted:
                self._canceled.add(self._durable.uploads_of(progress), progress.slots)
            return
        totals = self.totals["checkpoint" if progress.savepoint is None else "savepoint"]
        if isinstance(outcome, CheckpointInfo):
            totals.completed += 1
            totals.seconds += outcome.duration_ms / 1000
            totals.uploaded_bytes += outcome.uploaded_bytes
            totals.handover_ms, totals.slots = progress.handover_ms, progress.parts
            if progress.savepoint is not None:
                self.last_savepoint = outcome
            else:
                self.last_checkpoint = outcome
                self._clean()
        else:
            totals.failed += 1
            if isinstance(outcome, SlotLostError):
                self._due_s = min(self._due_s, time.monotonic() + _AFTER_LOSS_S)
            if progress.slots and not progress.publishing:
                self._canceled.add(self._durable.uploads_of(progress), progress.slots)
            if isinstance(outcome, FencedError) and self._durable.fence.fenced:
                self._fenced(outcome)
        if progress.request is not None:
            progress.request.finish(outcome)
        if self._told is not None:
            self._told(outcome, progress.savepoint is not None, "canonical" if progress.unpublished else "native")

    def converted(self, outcome: CheckpointInfo | StatefulSparkError) -> None:
        """A conversion to a canonical savepoint has ended; of its snapshot, only a failure was counted."""
        totals = self.totals["savepoint"]
        if isinstance(outcome, CheckpointInfo):
            totals.completed += 1
            totals.seconds += outcome.duration_ms / 1000
            totals.uploaded_bytes += outcome.uploaded_bytes
            self.last_savepoint = outcome
        else:
            _log.warning("a canonical savepoint failed", error=str(outcome)[:300])
            totals.failed += 1
            if isinstance(outcome, FencedError) and self._durable.fence.fenced:
                self._fenced(outcome)
        if self._told is not None:
            self._told(outcome, True, "canonical")

    def _clean(self) -> None:
        """Delete what no retained checkpoint needs; trouble here never hurts the job."""
        if any(slot.state == RESTORING for slot in self._slots.all()):
            # It may read the checkpoint before this one and the changelogs since; the next checkpoint cleans.
            return
        try:
            self._durable.clean(self._snapshots.current_id, self._spark_state.in_use)
        except StatefulSparkError as error:
            _log.warning("retention failed", error=str(error)[:300])

    def close(self) -> None:
        """Cancel the pending checkpoint. Callers that still wait get an error: the job is ending."""
        self._snapshots.close()
        self._requests.close()
        self._canceled.close()
