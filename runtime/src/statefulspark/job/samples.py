"""The metrics of a job, from what the coordinator and the slots report."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from statefulspark.job.controls import JobState, JobStatus, MetricSample

if TYPE_CHECKING:
    from statefulspark.job.coordinator import Coordinator


def samples_of(status: JobStatus, coordinator: Coordinator, *, restarts: int) -> list[MetricSample]:
    """All samples at this moment."""
    log = coordinator.batches
    job = {"job": status.name}
    now_ms = time.time() * 1000

    def gauge(name: str, text: str, value: float, **labels: str) -> MetricSample:
        return MetricSample(name=name, help=text, kind="gauge", value=value, labels=job | labels)

    def counter(name: str, text: str, value: float, **labels: str) -> MetricSample:
        return MetricSample(name=name, help=text, kind="counter", value=value, labels=job | labels)

    samples = [
        gauge("job_running", "1 while the job runs", float(status.state is JobState.RUNNING)),
        gauge("parallelism", "Number of slots", status.parallelism),
        gauge("batch", "Last committed batch", status.batch),
        counter("input_rows", "Rows that reached keyed steps", status.input_rows),
        counter("output_rows", "Rows keyed steps gave out", status.output_rows),
        counter("timers_fired", "Timers that fired", log.timers_fired),
        counter("restarts", "Restarts of the query", restarts),
        counter("failed_checkpoints", "Checkpoints that failed", status.failed_checkpoints),
    ]
    for uid, watermark in status.watermarks.items():
        if watermark is not None:
            samples.append(gauge("watermark_lag_seconds", "Now minus the watermark", (now_ms - watermark) / 1000, uid=uid))
    for slot in coordinator.slots.all():
        label = str(slot.index)
        samples.append(counter("slot_restarts", "Starts of the slot after the first", slot.restarts, slot=label))
        samples += [
            gauge("slot_rss_bytes", "Resident memory of the slot's process", float(slot.vitals.get("rss_bytes", 0)), slot=label),
            gauge("slot_state_bytes", "Live bytes of the slot's store", float(slot.vitals.get("state_bytes", 0)), slot=label),
        ]
    for (uid, index), ack in list(log.acknowledgements.items()):
        labels = {"uid": uid, "slot": str(index)}
        samples.append(gauge("batch_process_seconds", "Processing time of the last batch", ack["process_ms"] / 1000, **labels))
        samples.append(gauge("batch_durable_seconds", "Time to make its changelog durable", ack["durable_ms"] / 1000, **labels))
    last = status.last_checkpoint
    if last is not None:
        samples += [
            gauge("checkpoint_duration_seconds", "Duration of the last checkpoint", last.duration_ms / 1000),
            gauge("checkpoint_sync_seconds", "Longest synchronous part of the last checkpoint", last.sync_ms / 1000),
            gauge("checkpoint_size_bytes", "All files of the last checkpoint", last.size_bytes),
            gauge("checkpoint_uploaded_bytes", "New files of the last checkpoint", last.uploaded_bytes),
            gauge("checkpoint_age_seconds", "Time since the last checkpoint", (now_ms - last.completed_ms) / 1000),
        ]
    return samples
