"""Collects a job's metrics from the coordinator and the slots' heartbeats. `prometheus` derives further metrics from the status."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from statefulspark.coordinator.batches.totals import SnapshotTotals, StepTotals
from statefulspark.coordinator.controls import MetricSample
from statefulspark.coordinator.slots.state import Slot
from statefulspark.coordinator.view import CoordinatorView
from statefulspark.job.metrics.definitions import sample
from statefulspark.job.metrics.skew import skew_of
from statefulspark.job.metrics.sources import sources_of
from statefulspark.process.api.metrics import numbers
from statefulspark.slot.step_metrics import TOP_KEY_GROUPS
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.store.native_metrics import COLUMN_FAMILY_AS_VARIABLE, NATIVE_METRICS
from statefulspark.state.store.rocksdb_options import COLUMN_FAMILY
from statefulspark.state.tables.raw_keyed import RAW_KEYED


def samples_of(
    name: str, view: CoordinatorView, *, restarts: int, progress: Mapping[str, Any] | None, native_metrics: tuple[str, ...]
) -> list[MetricSample]:
    """Take all samples at this moment.

    Args:
        name: The job's.
        view: Of its coordinator.
        restarts: Of the query.
        progress: Spark's report of the last micro-batch.
        native_metrics: Flink's names of those that are switched on.
    """
    found = [
        sample("restarts", restarts),
        *_trigger_samples(progress),
        *_step_samples(view.totals),
        *_skew_samples(view),
        *_snapshot_samples(view.snapshot_totals),
    ]
    infos = {state.state_id: state for state in view.states}
    for slot in view.slots:
        found += _slot_samples(slot, view)
        found += _state_samples(slot, infos)
        found += _native_samples(slot, native_metrics)
    return [replace(one, labels={"job": name, **one.labels}) for one in found]


def _trigger_samples(progress: Mapping[str, Any] | None) -> Iterator[MetricSample]:
    if progress is None:
        return
    for part, milliseconds in progress["durationMs"].items():
        yield sample("trigger_seconds", milliseconds / 1000, part=part)
    yield sample("trigger_input_rows_per_second", _number(progress.get("inputRowsPerSecond")))
    yield sample("trigger_processed_rows_per_second", _number(progress.get("processedRowsPerSecond")))
    for number, source in enumerate(sources_of(progress)):
        label = f"{number} {source.description}"  # two sources may have the same description
        found = {"rows": source.backlog_rows, "files": source.backlog_files, "bytes": source.backlog_bytes}
        yield from (sample(f"source_backlog_{unit}", behind, source=label) for unit, behind in found.items() if behind is not None)
        for one in source.partitions:
            yield sample("source_partition_backlog_rows", one.rows, source=label, topic=one.topic, partition=one.partition)


def _number(value: Any) -> float:
    """Spark leaves a rate out, or says NaN as text, when no time has passed."""
    return float(value) if isinstance(value, int | float) else 0.0


def _step_samples(totals: Mapping[tuple[str, int], StepTotals]) -> Iterator[MetricSample]:
    steps = totals.items()
    yield sample("timers_fired", sum(total.timers_fired for _, total in steps))
    for (uid, slot), total in steps:
        labels = {"uid": uid, "slot": str(slot)}
        yield sample("step_batches", total.batches, **labels)
        yield sample("step_rows_in", total.rows_in, **labels)
        yield sample("step_rows_out", total.rows_out, **labels)
        yield sample("step_timers_registered", total.timers_registered, **labels)
        yield sample("step_timers_fired", total.timers_fired, **labels)
        yield sample("step_late_rows_dropped", total.late_rows_dropped, **labels)
        yield sample("step_changelog_bytes", total.changelog_bytes, **labels)
        for part, seconds in total.seconds.items():
            yield sample("step_seconds", seconds, part=part, **labels)
        for part, seconds in total.last_seconds.items():
            yield sample("step_last_batch_seconds", seconds, part=part, **labels)
        for what, seconds in total.exchange_seconds.items():
            yield sample("step_exchange_wait_seconds", seconds, **labels, **{"for": what})


def _skew_samples(view: CoordinatorView) -> Iterator[MetricSample]:
    for uid, skew in skew_of(view.slots, top=TOP_KEY_GROUPS).items():
        yield sample("key_group_skew_ratio", skew.ratio, uid=uid)
        for slot, fullest, mean in skew.slots:
            yield sample("key_group_rows_max", fullest, uid=uid, slot=str(slot))
            yield sample("key_group_rows_mean", mean, uid=uid, slot=str(slot))
        for one in skew.top:
            yield sample("key_group_top_rows", one.rows, uid=uid, slot=str(one.slot), key_group=str(one.key_group))


def _slot_samples(slot: Slot, sized: CoordinatorView) -> Iterator[MetricSample]:
    labels = {"slot": str(slot.index)}
    if slot.last_heartbeat_s:
        yield sample("slot_heartbeat_age_seconds", max(0.0, time.monotonic() - slot.last_heartbeat_s), **labels)
    report = slot.report
    if report is None:
        return
    yield sample("slot_restore_seconds", report.restore_ms / 1000, **labels)
    yield sample("slot_baseline_bytes", report.baseline_bytes, **labels)
    yield sample("slot_pss_bytes", report.pss_bytes, **labels)
    yield sample("slot_rss_bytes", report.rss_bytes, **labels)
    yield sample("slot_store_bytes", report.state_bytes, **labels)
    yield sample("slot_budget_bytes", sized.process_bytes, **labels)
    if sized.budget_bytes is not None:
        yield sample("slot_managed_budget_bytes", sized.budget_bytes, **labels)
    if (memory := report.memory) is not None:
        found = {
            "slot_block_cache_capacity_bytes": memory.cache_bytes,
            "slot_managed_used_bytes": memory.cache_used_bytes,
            "slot_managed_bytes": memory.tuning.managed_bytes if memory.tuning is not None else None,
            "slot_write_buffer_capacity_bytes": memory.write_buffer_bytes,
            "slot_write_buffer_used_bytes": memory.write_buffer_used_bytes,
        }
        yield from (sample(name, value, **labels) for name, value in found.items() if value is not None)


def _state_samples(slot: Slot, infos: Mapping[int, StateInfo]) -> Iterator[MetricSample]:
    report, label = slot.report, str(slot.index)
    if report is None:
        return
    yield sample("state_size_coverage_ratio", report.coverage, slot=label)
    for number, size in report.states.items():
        info = infos.get(number)
        uid, state = (info.uid, info.name) if info is not None else ("", f"state-{number}")
        if info is None or info.kind != RAW_KEYED:  # its streams are stored in chunks
            yield sample("state_entries", size.entries, uid=uid, state=state, slot=label)
        yield sample("state_bytes", size.size_bytes, uid=uid, state=state, slot=label)
    for uid, step in report.steps.items():
        for state, (hits, misses) in step.caches.items():
            yield sample("state_cache_hits", hits, uid=uid, state=state, slot=label)
            yield sample("state_cache_misses", misses, uid=uid, state=state, slot=label)
        for state, expired in step.expired.items():
            yield sample("state_expired_entries", expired, uid=uid, state=state, slot=label)
        if step.expired:
            yield sample("state_cleanup_seconds", step.cleanup_seconds, uid=uid, slot=label)
            yield sample("state_cleanup_lag", step.cleanup_lag, uid=uid, slot=label)
        for name, metric in step.user.items():
            for full, value in numbers(name, metric):
                yield sample("user_metric", value, uid=uid, slot=label, name=full)


def _native_samples(slot: Slot, wanted: tuple[str, ...]) -> Iterator[MetricSample]:
    label = {"slot": str(slot.index)}
    native = slot.report.native if slot.report is not None else ()
    family = {"column_family": COLUMN_FAMILY} if COLUMN_FAMILY_AS_VARIABLE in wanted else {}
    for metric in native:
        levels = {} if metric.level is None else {"level": metric.level}
        yield sample(NATIVE_METRICS[metric.name].metric, metric.value, **label, **levels, **family)
    counts = {metric.name: metric.value for metric in native}
    asked = counts.get("block-cache-hit", 0) + counts.get("block-cache-miss", 0)
    if asked and {"block-cache-hit", "block-cache-miss"} <= set(counts):
        yield sample("slot_block_cache_hit_ratio", counts["block-cache-hit"] / asked, **label)


def _snapshot_samples(totals: Mapping[str, SnapshotTotals]) -> Iterator[MetricSample]:
    for kind, total in totals.items():
        yield sample("snapshots", total.completed, kind=kind, outcome="completed")
        yield sample("snapshots", total.failed, kind=kind, outcome="failed")
        yield sample("snapshot_seconds", total.seconds, kind=kind)
        yield sample("snapshot_uploaded_bytes", total.uploaded_bytes, kind=kind)
        if total.completed:
            yield sample(f"{kind}_handover_seconds", total.handover_ms / 1000)
    for slot, part in sorted(totals["checkpoint"].slots.items()):
        label = str(slot)
        yield sample("checkpoint_slot_sync_seconds", part.sync_ms / 1000, slot=label)
        yield sample("checkpoint_slot_flush_seconds", part.flush_ms / 1000, slot=label)
        yield sample("checkpoint_slot_upload_seconds", part.upload_ms / 1000, slot=label)
        yield sample("checkpoint_slot_size_bytes", part.size_bytes, slot=label)
        yield sample("checkpoint_slot_uploaded_bytes", part.uploaded_bytes, slot=label)
