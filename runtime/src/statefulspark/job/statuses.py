"""One consistent look at a job, from what its coordinator knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statefulspark.job.controls import JobError, JobState, JobStatus, SlotStatus
from statefulspark.job.slots import LOST, READY, RESTORING, STARTING
from statefulspark.keygroups import key_group_range

if TYPE_CHECKING:
    from statefulspark.job.coordinator import Coordinator

_SLOT_STATES = {STARTING: "STARTING", RESTORING: "RESTORING", READY: "RUNNING", LOST: "LOST"}


def status_of(
    coordinator: Coordinator,
    *,
    name: str,
    max_parallelism: int,
    state: JobState,
    since_ms: int,
    restored_from: str | None,
    error: JobError | None,
    ended: bool,
) -> JobStatus:
    """Describe the job; never blocks on storage or slots."""
    log = coordinator.batches
    table = coordinator.slots.all()
    return JobStatus(
        job_id=coordinator.durable.job_id,
        name=name,
        state=state,
        since_ms=since_ms,
        parallelism=len(table),
        max_parallelism=max_parallelism,
        attempt=coordinator.durable.attempt,
        batch=log.committed,
        input_rows=log.rows_in,
        output_rows=log.rows_out,
        watermarks={uid: log.watermark(uid) for uid in log.delays_ms},
        slots=_slots(coordinator, max_parallelism, ended=ended),
        last_checkpoint=coordinator.last_checkpoint,
        last_savepoint=coordinator.last_savepoint,
        restored_from=restored_from,
        failed_checkpoints=coordinator.failed_checkpoints,
        error=error,
    )


def _slots(coordinator: Coordinator, max_parallelism: int, *, ended: bool) -> tuple[SlotStatus, ...]:
    table = coordinator.slots.all()
    found = []
    for slot in table:
        groups = key_group_range(slot.index, len(table), max_parallelism)
        found.append(
            SlotStatus(
                slot=slot.index,
                first=groups.first,
                last=groups.last,
                state="LOST" if ended else _SLOT_STATES[slot.state],
                epoch=slot.epoch,
                executor=slot.executor or None,
                host=slot.host or None,
                pid=slot.pid or None,
                restarts=slot.restarts,
            )
        )
    return tuple(found)
