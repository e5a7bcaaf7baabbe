"""Builds a consistent status of a job from what its coordinator knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from statefulspark.coordinator.controls import Cancellation, JobError, JobFailing, JobState, JobStatus
from statefulspark.coordinator.ongoing_work import SlotRestoring
from statefulspark.coordinator.slots.rescales import Rescale
from statefulspark.coordinator.slots.state import LOST, READY, RESTORING, STARTING, Slot
from statefulspark.coordinator.slots.status import SlotMemory, SlotStatus
from statefulspark.coordinator.view import CoordinatorView
from statefulspark.job.metrics.skew import skew_of
from statefulspark.job.metrics.sources import lag_of, sources_of
from statefulspark.job.metrics.user_metrics import number_of_user_metrics, user_metrics_of
from statefulspark.job.run.pending_timers import pending_timers
from statefulspark.keygroups import key_group_range
from statefulspark.rpc.messages.heartbeat import SlotReport
from statefulspark.slot.step_metrics import TOP_KEY_GROUPS

_SLOT_STATES = {STARTING: "STARTING", RESTORING: "RESTORING", READY: "RUNNING", LOST: "LOST"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryHealth:
    """Status of the streaming query.

    Attributes:
        restarts: Times it was started again after a failure.
        failing: Failures since the last committed batch.
        idle: It waits for new rows.
        progress: Spark's report of the last batch; None before the first.
        last_rescale: The last one in this driver.
    """

    restarts: int
    failing: JobFailing | None
    idle: bool
    progress: Mapping[str, Any] | None = None
    last_rescale: Rescale | None = None


def status_of(
    view: CoordinatorView,
    *,
    name: str,
    max_parallelism: int,
    state: JobState,
    since_ms: int,
    error: JobError | None,
    canceled: Cancellation | None,
    ended: bool,
    query: QueryHealth,
) -> JobStatus:
    """Describe the job; never blocks on storage or slots."""
    user_metrics = user_metrics_of(view.slots)
    sources = sources_of(query.progress)
    return JobStatus(
        job_id=view.job_id,
        name=name,
        state=state,
        since_ms=since_ms,
        parallelism=len(view.slots),
        max_parallelism=max_parallelism,
        attempt=view.attempt,
        batch=view.committed,
        input_rows=view.rows_in,
        output_rows=view.rows_out,
        watermarks=dict(view.watermarks),
        timers=pending_timers(view),
        slots=_slots(view, max_parallelism, ended=ended),
        skew={uid: skew.to_status() for uid, skew in skew_of(view.slots, top=TOP_KEY_GROUPS).items()},
        sources=sources,
        lag=lag_of(sources, query.progress),
        user_metrics=user_metrics,
        user_metrics_left_out=number_of_user_metrics(view.slots) - sum(map(len, user_metrics.values())),
        last_checkpoint=view.last_checkpoint,
        last_savepoint=view.last_savepoint,
        pending_snapshot=view.pending_snapshot if not ended else None,
        last_rescale=query.last_rescale,
        restored_from=view.restored_from,
        failed_checkpoints=view.failed_checkpoints,
        restarts=query.restarts,
        committed_batches=view.commits,
        idle=query.idle and state is JobState.RUNNING,
        failing=query.failing if state is JobState.RUNNING else None,
        error=error,
        canceled=canceled,
    )


def _slots(view: CoordinatorView, max_parallelism: int, *, ended: bool) -> tuple[SlotStatus, ...]:
    found = []
    for slot in view.slots:
        groups = key_group_range(slot.index, len(view.slots), max_parallelism)
        found.append(
            SlotStatus(
                slot=slot.index,
                first=groups.first,
                last=groups.last,
                state="STOPPED" if ended else _SLOT_STATES[slot.state],
                epoch=slot.epoch,
                executor=slot.executor or None,
                host=slot.host or None,
                pid=slot.pid or None,
                restarts=slot.restarts,
                rows_in=view.slot_rows.get(slot.index, 0),
                store_bytes=slot.report.state_bytes if slot.report is not None else None,
                cache_hit_ratio=_hit_ratio(slot.report),
                memory=_memory(slot.report, view),
                restoring=_restoring(slot) if not ended else None,
            )
        )
    return tuple(found)


def _restoring(slot: Slot) -> SlotRestoring | None:
    if slot.state != RESTORING or slot.restored is None:
        return None
    done_bytes = slot.restored.downloaded_bytes + slot.restored.local_bytes
    return SlotRestoring(downloaded_bytes=done_bytes, total_bytes=slot.restored.total_bytes)


def _hit_ratio(report: SlotReport | None) -> float | None:
    lookups = [counts for step in report.steps.values() for counts in step.caches.values()] if report is not None else []
    asked = sum(hits + misses for hits, misses in lookups)
    return sum(hits for hits, _ in lookups) / asked if asked else None


def _memory(report: SlotReport | None, sized: CoordinatorView) -> SlotMemory | None:
    if report is None:
        return None
    native, container = report.memory, report.container
    tuning = native.tuning if native is not None else None
    return SlotMemory(
        rss_bytes=report.rss_bytes,
        pss_bytes=report.pss_bytes,
        baseline_bytes=report.baseline_bytes,
        process_budget_bytes=sized.process_bytes,
        budget_bytes=sized.budget_bytes,
        managed_bytes=tuning.managed_bytes if tuning is not None else None,
        used_bytes=native.cache_used_bytes if native is not None else None,
        cache_bytes=native.cache_bytes if native is not None else None,
        write_buffer_bytes=native.write_buffer_bytes if native is not None else None,
        write_buffer_used_bytes=native.write_buffer_used_bytes if native is not None else None,
        revision=tuning.revision if tuning is not None else None,
        container_limit_bytes=container.limit_bytes if container is not None else None,
        container_peak_bytes=container.peak_bytes if container is not None else None,
        container_oom_kills=container.oom_kills if container is not None else None,
    )
