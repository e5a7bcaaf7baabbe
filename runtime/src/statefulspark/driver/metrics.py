"""Samples of the job to Prometheus text: names, units and types as Prometheus wants them.

Names get the prefix ``statefulspark_``; counters end in ``_total``. What the status already says (state, rows, slots,
checkpoints, watermarks) is derived here, so every job has it; a family that the job itself gives takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from statefulspark.errors import InternalError
from statefulspark.job.controls import CheckpointInfo, JobControls, JobState, JobStatus, MetricSample

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
    for sample in samples:
        name = family_name(sample)
        family = found.setdefault(name, Metric(name, sample.help, sample.kind))
        if family.type != sample.kind:
            raise InternalError(f"metric {name} is given both as {family.type} and as {sample.kind}")
        if bad := [label for label in sample.labels if not _LABEL.fullmatch(label)]:
            raise InternalError(f"metric {name} has a label Prometheus refuses: {bad[0]!r}")
        identity = (name, frozenset(sample.labels.items()))
        if identity in seen:
            raise InternalError(f"metric {name} is given twice with the labels {dict(sample.labels)}")
        seen.add(identity)
        family.add_sample(name + ("_total" if sample.kind == "counter" else ""), dict(sample.labels), sample.value)
    return list(found.values())


def family_name(sample: MetricSample) -> str:
    """Return the name of the family: with prefix, without ``_total``."""
    bare = sample.name.removeprefix(PREFIX)
    if sample.kind == "counter":
        bare = bare.removesuffix("_total")
    if not _NAME.fullmatch(bare):
        raise InternalError(f"{sample.name!r} is not a metric name: lower-case letters, digits and '_'")
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
        names = {family_name(sample) for sample in own}
        derived = [sample for sample in status_samples(self._job.status(), now_ms=self._now_ms()) if family_name(sample) not in names]
        return families([*derived, *own])

    def describe(self) -> Iterable[Metric]:
        return []


def status_samples(status: JobStatus, *, now_ms: int) -> Iterator[MetricSample]:
    """Say what a status says, in samples; each has the label ``job``."""
    for sample in _status_samples(status, now_ms):
        yield replace(sample, labels={"job": status.name, **sample.labels})


def _status_samples(status: JobStatus, now_ms: int) -> Iterator[MetricSample]:
    yield _gauge("job_info", "Identity of the job; always 1.", 1, job_id=status.job_id, attempt=str(status.attempt))
    for state in JobState:
        yield _gauge("job_state", "1 for the state the job is in, 0 for the others.", float(status.state == state), state=state.value)
    yield _gauge("job_state_since_seconds", "When the job entered its state, seconds since the epoch.", status.since_ms / 1000)
    yield _gauge("parallelism", "Slots the job runs with.", status.parallelism)
    yield _gauge("max_parallelism", "Key groups of the job.", status.max_parallelism)
    yield _gauge("batch", "Last committed batch; -1 before the first.", status.batch)
    yield _counter("input_rows", "Rows read from the sources by this driver.", status.input_rows)
    yield _counter("output_rows", "Rows given out by the keyed steps in this driver.", status.output_rows)
    yield _counter("failed_checkpoints", "Checkpoints of this driver that did not complete.", status.failed_checkpoints)
    for uid, watermark in status.watermarks.items():
        if watermark is not None:
            yield _gauge("watermark_seconds", "Watermark of an operator, seconds since the epoch.", watermark / 1000, uid=uid)
            yield _gauge("watermark_lag_seconds", "How far the watermark is behind the wall clock.", (now_ms - watermark) / 1000, uid=uid)
    for slot in status.slots:
        labels = {"slot": str(slot.slot)}
        yield _gauge("slot_up", "1 while the slot processes rows.", float(slot.state == "RUNNING"), **labels)
        yield _gauge("slot_epoch", "Number of the slot's incarnation.", slot.epoch, **labels)
        yield _gauge("slot_key_groups", "Key groups the slot owns.", slot.last - slot.first + 1, **labels)
        yield _counter("slot_restarts", "Times the slot was started again in this attempt.", slot.restarts, **labels)
    for info in (status.last_checkpoint, status.last_savepoint):
        if info is not None:
            yield from _snapshot_samples(info)


def _snapshot_samples(info: CheckpointInfo) -> Iterator[MetricSample]:
    kind = info.kind
    yield _gauge(f"{kind}_id", f"Number of the last completed {kind}.", info.id)
    yield _gauge(f"{kind}_completed_seconds", f"When the last {kind} was completed, seconds since the epoch.", info.completed_ms / 1000)
    yield _gauge(f"{kind}_duration_seconds", f"Of the last {kind}: from the trigger to the published metadata.", info.duration_ms / 1000)
    yield _gauge(f"{kind}_sync_seconds", f"Of the last {kind}: longest time for which a slot could not process rows.", info.sync_ms / 1000)
    yield _gauge(f"{kind}_size_bytes", f"Of the last {kind}: all files it refers to.", info.size_bytes)
    yield _gauge(f"{kind}_uploaded_bytes", f"Of the last {kind}: bytes that were not already uploaded before.", info.uploaded_bytes)


def _gauge(name: str, help_text: str, value: float, **labels: str) -> MetricSample:
    return MetricSample(name=name, help=help_text, kind="gauge", value=value, labels=labels)


def _counter(name: str, help_text: str, value: float, **labels: str) -> MetricSample:
    return MetricSample(name=name, help=help_text, kind="counter", value=value, labels=labels)
