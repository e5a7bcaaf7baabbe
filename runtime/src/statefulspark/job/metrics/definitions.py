"""Defines every metric of the driver: name, meaning, unit and labels. Only metrics defined here are exported.

The exposition adds the prefix ``statefulspark_`` and, to counters, ``_total``; each sample has the label ``job`` in addition to those
listed here. All label values are bounded: slots and key groups by the manifest, uids and states by the code, memory parts by this program,
topics and partitions by a maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from statefulspark.coordinator.controls import MetricSample
from statefulspark.errors import InternalError
from statefulspark.state.store.native_metrics import NATIVE_METRICS, NativeMetric

Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric.

    Attributes:
        name: With its unit, without prefix and ``_total``.
        kind: counter or gauge.
        help: One line for Prometheus and the documentation.
        labels: Besides ``job``.
        optional: Labels that samples may leave out.
        group: Under which heading the documentation lists it.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    group: str = ""


def _group(title: str, *rows: tuple[str, Kind, str, str]) -> list[MetricDefinition]:
    return [MetricDefinition(name, kind, text, tuple(labels.split()), group=title) for name, kind, text, labels in rows]


def _of_the_last(kind: str) -> list[tuple[str, Kind, str, str]]:
    last = f"Of the last {kind}: "
    return [
        (f"{kind}_id", "gauge", f"Number of the last completed {kind}.", ""),
        (f"{kind}_completed_seconds", "gauge", f"When the last {kind} was completed, seconds since the epoch.", ""),
        (f"{kind}_age_seconds", "gauge", f"Time since the last {kind} was completed.", ""),
        (f"{kind}_duration_seconds", "gauge", f"{last}from the trigger to the published metadata.", ""),
        (f"{kind}_sync_seconds", "gauge", f"{last}longest time for which a slot could not process rows.", ""),
        (f"{kind}_handover_seconds", "gauge", f"{last}time in which no batch could begin.", ""),
        (f"{kind}_size_bytes", "gauge", f"{last}all files it refers to.", ""),
        (f"{kind}_uploaded_bytes", "gauge", f"{last}bytes that were not already uploaded.", ""),
    ]


_JOB = _group(
    "Job",
    ("job_info", "gauge", "Identity of the job; always 1.", "job_id attempt"),
    ("job_state", "gauge", "1 for the state the job is in, 0 for the others.", "state"),
    ("job_state_since_seconds", "gauge", "When the job entered its state, seconds since the epoch.", ""),
    ("parallelism", "gauge", "Number of slots of the job.", ""),
    ("max_parallelism", "gauge", "Number of key groups of the job.", ""),
    ("batch", "gauge", "Last committed batch; -1 before the first.", ""),
    ("input_rows", "counter", "Rows that reached keyed steps in committed batches of this driver.", ""),
    ("output_rows", "counter", "Rows emitted by keyed steps in committed batches of this driver.", ""),
    ("timers_fired", "counter", "Timers that fired in committed batches of this driver.", ""),
    ("restarts", "counter", "Number of times this driver restarted the query after a failure.", ""),
    ("consecutive_failures", "gauge", "Failures since the last committed batch; 0 while batches succeed.", ""),
    ("committed_batches", "counter", "Batches that this driver has committed.", ""),
    ("idle", "gauge", "1 while the query waits for new rows.", ""),
    ("trigger_seconds", "gauge", "Of the last micro-batch: Spark's own times (durationMs) by part; triggerExecution is the whole.", "part"),
    ("trigger_input_rows_per_second", "gauge", "Of the last micro-batch: input rows per second reported by Spark.", ""),
    ("trigger_processed_rows_per_second", "gauge", "Of the last micro-batch: processed rows per second reported by Spark.", ""),
    ("source_backlog_rows", "gauge", "Rows that the source had and the last batch did not read; only of sources that report it.", "source"),
    (
        "source_backlog_files",
        "gauge",
        "Files that the source had and the last batch did not read; only of sources that report it.",
        "source",
    ),
    (
        "source_backlog_bytes",
        "gauge",
        "Bytes that the source had and the last batch did not read; only of sources that report it.",
        "source",
    ),
    (
        "source_partition_backlog_rows",
        "gauge",
        "Rows that a partition of a Kafka topic had and the last batch did not read; at most 100 partitions at a time, those with most rows first.",
        "source topic partition",
    ),
    ("watermark_seconds", "gauge", "Watermark of a keyed step, seconds since the epoch; absent before the first event.", "uid"),
    ("watermark_lag_seconds", "gauge", "Lag of the watermark behind the wall clock.", "uid"),
)
_PARTS = (
    "Time that batches spent in the slot, by part: begin (bring the state to the batch's start), input (wait for rows), process"
    " (sort, and the function), output (wait until results are taken), encode (what changed), durable (its changelog)."
)
_STEPS = _group(
    "Keyed steps per slot: committed batches of this driver",
    ("step_batches", "counter", "Batches that had rows or ticks for the step in the slot.", "uid slot"),
    ("step_rows_in", "counter", "Rows that reached the step in the slot.", "uid slot"),
    ("step_rows_out", "counter", "Rows the step emitted in the slot.", "uid slot"),
    (
        "step_seconds",
        "counter",
        _PARTS,
        "uid slot part",
    ),
    ("step_last_batch_seconds", "gauge", "Time that the last batch spent in the slot, by part.", "uid slot part"),
    (
        "step_exchange_wait_seconds",
        "counter",
        "What exchanges waited for: slot (until it was ready and answered), send (until it took rows: back-pressure).",
        "uid slot for",
    ),
    ("step_timers_registered", "counter", "Timers that the function registered, including repeated ones.", "uid slot"),
    ("step_timers_fired", "counter", "Timers that fired.", "uid slot"),
    ("step_late_rows_dropped", "counter", "Rows that came too late for their windows and went to no side output.", "uid slot"),
    ("step_changelog_bytes", "counter", "Changelogs of the batches in storage.", "uid slot"),
    ("user_metric", "gauge", "A metric that the function registered; at most 100 per uid.", "uid slot name"),
)
_SKEW = _group(
    "Key-group skew: rows in a window of the last one to two million rows of each slot",
    ("key_group_rows_max", "gauge", "Rows of the largest key group of the slot.", "uid slot"),
    ("key_group_rows_mean", "gauge", "Rows per key group of the slot, empty ones included.", "uid slot"),
    ("key_group_skew_ratio", "gauge", "Over all slots: rows of the largest key group divided by the mean; 1 is even.", "uid"),
    ("key_group_top_rows", "gauge", "Rows of the largest key groups, at most five per uid at a time.", "uid slot key_group"),
)
_STATES = _group(
    "State per slot",
    (
        "state_entries",
        "gauge",
        "Estimated entries of the state in the slot: keys, entries of maps, timers. A list is one entry. Raw keyed state has bytes only.",
        "uid state slot",
    ),
    ("state_bytes", "gauge", "Estimated bytes of the state in the slot: keys and values before compression.", "uid state slot"),
    ("state_size_coverage_ratio", "gauge", "Fraction of the slot's key groups that the two estimates have covered.", "slot"),
    ("state_cache_hits", "counter", "Lookups answered by the cache of decoded objects.", "uid state slot"),
    ("state_cache_misses", "counter", "Lookups that read the store.", "uid state slot"),
    ("state_expired_entries", "counter", "Entries that the cleanup has deleted because their time to live was over.", "uid state slot"),
    ("state_cleanup_seconds", "counter", "Time that the cleanup of expired entries took.", "uid slot"),
    (
        "state_cleanup_lag",
        "gauge",
        "How late the cleanup is, in units of two fifths of the time to live; above 0.5, add slots or lengthen the time to live.",
        "uid slot",
    ),
)
_SLOTS = _group(
    "Slots and their memory",
    ("slot_up", "gauge", "1 while the slot processes rows.", "slot"),
    ("slot_epoch", "gauge", "Number of the slot's incarnation.", "slot"),
    ("slot_key_groups", "gauge", "Key groups the slot owns.", "slot"),
    ("slot_restarts", "counter", "Number of times the slot was restarted in this attempt.", "slot"),
    ("slot_restore_seconds", "gauge", "Time that the slot's last start took to restore its state.", "slot"),
    ("slot_heartbeat_age_seconds", "gauge", "Time since the slot's last heartbeat.", "slot"),
    ("slot_rss_bytes", "gauge", "Resident memory of the slot's process.", "slot"),
    (
        "slot_pss_bytes",
        "gauge",
        "Proportional set size of the slot's process: shared pages by their share; read every ten seconds.",
        "slot",
    ),
    ("slot_baseline_bytes", "gauge", "Resident memory of the process before it opened its store.", "slot"),
    (
        "slot_budget_bytes",
        "gauge",
        "Memory that the process is sized for, Python and managed memory; slot_pss_bytes should stay below it.",
        "slot",
    ),
    ("slot_store_bytes", "gauge", "Live bytes of the slot's store, files and write buffers.", "slot"),
    ("slot_managed_budget_bytes", "gauge", "Managed memory that the slot's process is sized for.", "slot"),
    ("slot_managed_bytes", "gauge", "Managed memory that the slot may use now (live tuning can lower it).", "slot"),
    ("slot_managed_used_bytes", "gauge", "Used part of it: cached blocks, indexes, filters, write buffers.", "slot"),
    ("slot_block_cache_capacity_bytes", "gauge", "Capacity of the block cache, which write buffers are charged to.", "slot"),
    ("slot_write_buffer_capacity_bytes", "gauge", "Limit of all write buffers of the slot.", "slot"),
    ("slot_write_buffer_used_bytes", "gauge", "Memory of all write buffers of the slot.", "slot"),
    (
        "slot_block_cache_hit_ratio",
        "gauge",
        "Cache hits divided by cache lookups since the slot started; only with the native metrics block-cache-hit and -miss.",
        "slot",
    ),
)
_SNAPSHOTS = _group(
    "Checkpoints and savepoints of this driver",
    ("snapshots", "counter", "Checkpoints and savepoints by outcome: completed or failed.", "kind outcome"),
    ("snapshot_seconds", "counter", "Time that completed ones took, from the trigger to the published metadata.", "kind"),
    ("snapshot_uploaded_bytes", "counter", "Bytes that completed ones uploaded (increments).", "kind"),
    ("failed_checkpoints", "counter", "Checkpoints that did not complete.", ""),
    *_of_the_last("checkpoint"),
    *_of_the_last("savepoint"),
    ("checkpoint_slot_sync_seconds", "gauge", "Of the last checkpoint: for how long the slot could not process rows.", "slot"),
    ("checkpoint_slot_flush_seconds", "gauge", "Of the last checkpoint: flush and hard links, in the background.", "slot"),
    ("checkpoint_slot_upload_seconds", "gauge", "Of the last checkpoint: upload, in the background.", "slot"),
    ("checkpoint_slot_size_bytes", "gauge", "Of the last checkpoint: all files of the slot.", "slot"),
    ("checkpoint_slot_uploaded_bytes", "gauge", "Of the last checkpoint: bytes that the slot uploaded.", "slot"),
)


def _native(metric: NativeMetric) -> MetricDefinition:
    labels = ("slot", "level") if metric.by_level else ("slot",)
    return MetricDefinition(
        metric.metric, metric.kind, metric.meaning, labels, optional=("column_family",), group="RocksDB's own, each only when named"
    )


DEFINITIONS: Final = {
    each.name: each for each in (*_JOB, *_STEPS, *_SKEW, *_STATES, *_SLOTS, *_SNAPSHOTS, *map(_native, NATIVE_METRICS.values()))
}
"""By name."""


def sample(name: str, value: float, /, **labels: str) -> MetricSample:
    """Make a sample of a metric.

    Raises:
        InternalError: There is no such metric, or it has other labels.
    """
    definition = DEFINITIONS.get(name)
    if definition is None:
        raise InternalError(f"metric {name} is not defined")
    if not set(definition.labels) <= set(labels) <= {"job", *definition.labels, *definition.optional}:
        raise InternalError(f"metric {name} has the labels {', '.join(definition.labels)} and not {', '.join(labels)}")
    return MetricSample(name=name, help=definition.help, kind=definition.kind, value=value, labels=labels)
