"""Renders the job's metrics as Prometheus text, with Prometheus' conventions for names, units and types.

Names get the prefix ``statefulspark_``; counters end in ``_total``. Metrics that follow from the status (state, rows, slots,
checkpoints, watermarks) are derived here, so every job has them, unless the job reports a metric of that name itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from statefulspark.coordinator.controls import CheckpointInfo, JobControls, JobState, JobStatus, MetricSample
from statefulspark.errors import InternalError
from statefulspark.job.metrics.definitions import sample

CONTENT_TYPE = CONTENT_TYPE_LATEST
PREFIX = "statefulspark_"

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def families(samples: Iterable[MetricSample]) -> list[Metric]:
    """Group samples into families, in the order in which their names first appear.

    Raises:
        InternalError: A name or label Prometheus would refuse, two kinds under one name, or the same labels twice.
    """
    found: dict[str, Metric] = {}
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for one in samples:
        name = family_name(one)
        family = found.setdefault(name, Metric(name, one.help, one.kind))
        if family.type != one.kind:
            raise InternalError(f"metric {name} is reported both as {family.type} and as {one.kind}")
        if bad := [label for label in one.labels if not _LABEL.fullmatch(label)]:
            raise InternalError(f"metric {name} has an invalid label for Prometheus: {bad[0]!r}")
        identity = (name, frozenset(one.labels.items()))
        if identity in seen:
            raise InternalError(f"metric {name} is reported twice with the labels {dict(one.labels)}")
        seen.add(identity)
        family.add_sample(name + ("_total" if one.kind == "counter" else ""), dict(one.labels), one.value)
    return list(found.values())


def family_name(given: MetricSample) -> str:
    """Return the name of the family: with prefix, without ``_total``."""
    bare = given.name.removeprefix(PREFIX)
    if given.kind == "counter":
        bare = bare.removesuffix("_total")
    if not _NAME.fullmatch(bare):
        raise InternalError(f"{given.name!r} is not a metric name: lower-case letters, digits and '_'")
    return PREFIX + bare


def exposition(job: JobControls, *, now_ms: Callable[[], int]) -> bytes:
    """Return the whole text of ``GET /metrics``."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_JobCollector(job, now_ms))
    return generate_latest(registry)


class _JobCollector(Collector):
    def __init__(self, job: JobControls, now_ms: Callable[[], int]) -> None:
        self._job = job
        self._now_ms = now_ms

    def collect(self) -> Iterable[Metric]:
        own = list(self._job.metrics())
        names = {family_name(one) for one in own}
        derived = [one for one in status_samples(self._job.status(), now_ms=self._now_ms()) if family_name(one) not in names]
        return families([*derived, *own])

    def describe(self) -> Iterable[Metric]:
        return []


def status_samples(status: JobStatus, *, now_ms: int) -> Iterator[MetricSample]:
    """Derive samples from a status; each has the label ``job``."""
    for one in _status_samples(status, now_ms):
        yield replace(one, labels={"job": status.name, **one.labels})


def _status_samples(status: JobStatus, now_ms: int) -> Iterator[MetricSample]:
    yield sample("job_info", 1, job_id=status.job_id, attempt=str(status.attempt))
    for state in JobState:
        yield sample("job_state", float(status.state == state), state=state.value)
    yield sample("job_state_since_seconds", status.since_ms / 1000)
    yield sample("parallelism", status.parallelism)
    yield sample("max_parallelism", status.max_parallelism)
    yield sample("batch", status.batch)
    yield sample("input_rows", status.input_rows)
    yield sample("output_rows", status.output_rows)
    yield sample("failed_checkpoints", status.failed_checkpoints)
    yield sample("committed_batches", status.committed_batches)
    yield sample("idle", float(status.idle))
    yield sample("consecutive_failures", status.failing.failures if status.failing is not None else 0)
    for uid, watermark in status.watermarks.items():
        if watermark is not None:
            yield sample("watermark_seconds", watermark / 1000, uid=uid)
            yield sample("watermark_lag_seconds", (now_ms - watermark) / 1000, uid=uid)
    for slot in status.slots:
        label = str(slot.slot)
        yield sample("slot_up", float(slot.state == "RUNNING"), slot=label)
        yield sample("slot_epoch", slot.epoch, slot=label)
        yield sample("slot_key_groups", slot.last - slot.first + 1, slot=label)
        yield sample("slot_restarts", slot.restarts, slot=label)
    for info in (status.last_checkpoint, status.last_savepoint):
        if info is not None:
            yield from _snapshot_samples(info, now_ms)


def _snapshot_samples(info: CheckpointInfo, now_ms: int) -> Iterator[MetricSample]:
    kind = info.kind
    yield sample(f"{kind}_id", info.id)
    yield sample(f"{kind}_completed_seconds", info.completed_ms / 1000)
    yield sample(f"{kind}_age_seconds", max(0, now_ms - info.completed_ms) / 1000)
    yield sample(f"{kind}_duration_seconds", info.duration_ms / 1000)
    yield sample(f"{kind}_sync_seconds", info.sync_ms / 1000)
    yield sample(f"{kind}_size_bytes", info.size_bytes)
    yield sample(f"{kind}_uploaded_bytes", info.uploaded_bytes)
