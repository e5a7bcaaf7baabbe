"""CoordinatorView: what the coordinator shows to its users, as of one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.batches.totals import SnapshotTotals, StepTotals
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.ongoing_work import PendingSnapshot
from statefulspark.coordinator.slots.memory_tuning import MemoryTuner
from statefulspark.coordinator.slots.state import READY, Slot
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.coordinator.snapshots.schedule import CheckpointSchedule
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.registry import StateRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorView:
    """A copy of what the coordinator knows. It never changes; ask for another view to see what has happened since."""

    job_id: str
    attempt: int
    """Number of this driver start."""
    restored_from: str | None
    """URL of the checkpoint or savepoint that the attempt started from; None if it started empty."""
    checkpoints: tuple[CheckpointInfo, ...]
    """Checkpoints that still exist and savepoints taken by this driver, oldest first."""
    has_savepoint_dir: bool
    """True if the manifest names a directory for savepoints."""

    committed: int
    """Last committed batch, -1 before the first."""
    commits: int
    """Batches that were committed after they ran in this driver."""
    committed_time_ms: int | None
    """Processing time of the last batch that this driver saw committed."""
    base: int
    """Batch of the checkpoint that slots restore."""
    base_checkpoint: CheckpointMetadata | None
    """That checkpoint; None for empty state."""
    rows_in: int
    rows_out: int
    watermarks: Mapping[str, int | None]
    """Per uid, in milliseconds; None before the first event."""
    timers: Mapping[tuple[str, int], tuple[int | None, int | None]]
    """Earliest event-time and processing-time timer per uid and slot."""
    totals: Mapping[tuple[str, int], StepTotals]
    """Of this driver's committed batches, per uid and slot."""
    slot_rows: Mapping[int, int]
    """Rows per slot since the driver started, or the job was last rescaled in it."""
    states: tuple[StateInfo, ...]
    """All states of the job by number."""
    dry_run: int | None
    """The batch that needs a dry run; None if there is none."""

    slots: tuple[Slot, ...]
    """All slots in order."""
    silence_s: float
    """Seconds since the last heartbeat of any slot, or since slots were submitted; 0 if there are no slots."""

    last_checkpoint: CheckpointInfo | None
    last_savepoint: CheckpointInfo | None
    pending_snapshot: PendingSnapshot | None
    failed_checkpoints: int
    """Failed checkpoints of this driver; savepoints are in ``snapshot_totals``."""
    snapshot_totals: Mapping[str, SnapshotTotals]
    """By ``checkpoint`` and ``savepoint``."""

    process_bytes: int
    """Memory that a slot's process is sized for."""
    budget_bytes: int | None
    """Native memory that a slot's process is sized for; None if it is not managed."""

    @property
    def all_ready(self) -> bool:
        """True if every slot serves."""
        return all(slot.state == READY for slot in self.slots)

    @property
    def position(self) -> tuple[int, int]:
        """Progress of batches and of the snapshot that is taken: the same if nothing moves."""
        return self.committed, pending.uploaded_bytes if (pending := self.pending_snapshot) is not None else 0


def view_of(
    *,
    durable: DurableJob,
    batches: BatchLog,
    states: StateRegistry,
    slots: SlotTable,
    dry_run: int | None,
    checkpoints: CheckpointSchedule,
    memory: MemoryTuner,
) -> CoordinatorView:
    """Copy what the parts of a coordinator know, without the batch lock."""
    all_slots = tuple(slots.all())
    return CoordinatorView(
        job_id=durable.job_id,
        attempt=durable.attempt,
        restored_from=durable.restored_from,
        checkpoints=tuple(durable.completed()),
        has_savepoint_dir=durable.has_savepoint_dir,
        committed=batches.committed,
        commits=batches.commits,
        committed_time_ms=batches.committed_time_ms,
        base=batches.base,
        base_checkpoint=base.metadata if (base := durable.base) is not None else None,
        rows_in=batches.rows_in,
        rows_out=batches.rows_out,
        watermarks={uid: batches.watermark(uid) for uid in batches.delays_ms},
        timers=dict(batches.timers),
        totals={key: total.copy() for key, total in list(batches.totals.items())},
        slot_rows=batches.slot_rows(),
        states=tuple(states.states()),
        dry_run=dry_run,
        slots=all_slots,
        silence_s=slots.silence_s(),
        last_checkpoint=checkpoints.last_checkpoint,
        last_savepoint=checkpoints.last_savepoint,
        pending_snapshot=checkpoints.pending(all_slots),
        failed_checkpoints=checkpoints.totals["checkpoint"].failed,
        snapshot_totals={kind: replace(total, slots=dict(total.slots)) for kind, total in checkpoints.totals.items()},
        process_bytes=memory.process_bytes,
        budget_bytes=memory.budget_bytes,
    )
