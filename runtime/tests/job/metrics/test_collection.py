"""The metrics of a job: names and labels as Prometheus wants them, one page that lists them all, figures from what slots report."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from statefulspark.api_server.prometheus import families
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.batches.totals import SlotSnapshot, SnapshotTotals
from statefulspark.coordinator.slots.memory_tuning import MemoryTuner
from statefulspark.coordinator.slots.state import Slot
from statefulspark.coordinator.view import CoordinatorView, view_of
from statefulspark.errors import InternalError
from statefulspark.job.metrics.collection import samples_of
from statefulspark.job.metrics.definitions import DEFINITIONS, sample
from statefulspark.job.metrics.reference import updated
from statefulspark.job.metrics.skew import skew_of
from statefulspark.memory.tuning import MemoryTuning
from statefulspark.process.api.metrics import UserMetric
from statefulspark.process.rows.key_group_rows import RowSpread
from statefulspark.rpc.messages.batches import Acknowledge, RunMetrics
from statefulspark.rpc.messages.heartbeat import NativeMemory, NativeMetric, SlotReport, StepReport
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.state_sizes import StateSize
from statefulspark.state.tables.raw_keyed import RAW_KEYED, RAW_KEYED_NAME

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"
KAFKA = {
    "description": "KafkaV2[Subscribe[orders]]", "startOffset": {"orders": {"0": 0, "1": 0}}, "endOffset": {"orders": {"0": 10, "1": 40}},
    "latestOffset": {"orders": {"0": 30, "1": 50}}, "numInputRows": 50, "inputRowsPerSecond": 25.0, "processedRowsPerSecond": 100.0,
    "metrics": {"avgOffsetsBehindLatest": "15.0", "maxOffsetsBehindLatest": "20", "minOffsetsBehindLatest": "10"},
}  # fmt: skip
"""As Spark's Kafka source reports it."""
LABELS = {
    "source",
    "topic",
    "partition",
    "job_id",
    "attempt",
    "state",
    "part",
    "uid",
    "slot",
    "for",
    "name",
    "key_group",
    "kind",
    "outcome",
    "level",
}


def test_the_page_lists_every_metric() -> None:
    """Else: ``python -m statefulspark.job.metrics.reference docs/metrics.md``."""
    page = PAGE.read_text(encoding="utf-8")
    assert updated(page) == page


def test_names_follow_prometheus() -> None:
    """Lower case, base units, the unit last, no _total (the exposition adds it), only labels whose values are bounded."""
    for name, definition in DEFINITIONS.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", name), name
        assert not re.search(r"_(ms|micros|minutes|kib|mib|kb|mb)(_|$)|_total$", name), name
        # Names end in their unit, except where they are Flink's.
        assert name.startswith("rocksdb_") or not re.search(r"_(bytes|seconds|ratio)_(?!per_second$|max$|mean$)", name), name
        assert definition.help.endswith("."), name
        assert definition.group
        assert set(definition.labels) <= LABELS, name


def test_a_sample_must_be_of_a_defined_metric_with_its_labels() -> None:
    with pytest.raises(InternalError, match="not defined"):
        sample("nonsense", 1)
    with pytest.raises(InternalError, match="labels"):
        sample("slot_up", 1)
    with pytest.raises(InternalError, match="labels"):
        sample("slot_up", 1, slot="0", host="x")


def reported(slot: int, top: tuple[tuple[int, int], ...], rows: int) -> SlotReport:
    tuning = MemoryTuning(revision=0, managed_bytes=64, write_buffer_ratio=0.5, high_prio_pool_ratio=0.1)
    return SlotReport(
        restore_ms=1500,
        rss_bytes=300,
        pss_bytes=200,
        baseline_bytes=100,
        state_bytes=50,
        coverage=0.5,
        states={1: StateSize(7, 700), 2: StateSize(3, 300), 9: StateSize(1, 10)},
        steps={
            "u": StepReport(
                caches={"count": (9, 1)},
                key_groups=RowSpread(rows, 4, top),
                user={
                    "seen": UserMetric(kind="meter", value=3.0),
                    "size": UserMetric(kind="distribution", value=2.0, sum=5.0 + slot, min=1.0 - slot, max=4.0),
                },
                expired={"count": 12},
                cleanup_seconds=0.5,
                cleanup_lag=0.25,
            )
        },
        memory=NativeMemory(tuning=tuning, cache_bytes=53, cache_used_bytes=5, write_buffer_bytes=None, write_buffer_used_bytes=None),
        native=(
            NativeMetric(name="block-cache-hit", level=None, value=30.0),
            NativeMetric(name="block-cache-miss", level=None, value=10.0),
            NativeMetric(name="num-files-at-level", level="0", value=2.0 + slot),
        ),
    )


def reporting() -> list[Slot]:
    return [
        Slot(0, report=reported(0, ((3, 60), (1, 20)), 80), last_heartbeat_s=1.0),
        Slot(1, report=reported(1, ((6, 70), (4, 10)), 80), last_heartbeat_s=1.0),
        Slot(2),
    ]


def acknowledgement(slot: int, batch: int) -> Acknowledge:
    return Acknowledge(
        uid="u",
        slot=slot,
        epoch=1,
        batch=batch,
        changelog=ChangelogRef(
            uid="u", slot=slot, first=slot, last=slot, batch=batch, epoch=1, key="x", size_bytes=11, checksum="sha256:" + "0" * 64
        ),
        changelog_bytes=11,
        max_event_time_ms=None,
        event_timer_ms=None,
        processing_timer_ms=None,
        rows_in=5,
        rows_out=4,
        metrics=RunMetrics(
            timers_fired=2,
            timers_registered=3,
            seconds={"process": 0.5, "durable": 0.25},
            exchange_seconds={"slot": 0.125, "send": 1.0},
        ),
    )


def seen() -> CoordinatorView:
    """What the samples are made of."""
    log = BatchLog(delays_ms={"u": (0,)})
    for batch in range(2):
        log.commit_current()
        log.begin(log.next_parameters(batch, 1000))
        assert log.acknowledge(acknowledgement(0, batch))
        assert log.acknowledge(acknowledgement(1, batch))
    states = StateRegistry()
    states.register("u", "count", "value", {"key_type": [], "type": {}, "ttl_ms": None})
    states.register("u", RAW_KEYED_NAME, RAW_KEYED, {"key_type": [], "type": {}, "ttl_ms": None})
    part = SlotSnapshot(sync_ms=3.0, flush_ms=20.0, upload_ms=40.0, size_bytes=1000, uploaded_bytes=100)
    totals = {
        "checkpoint": SnapshotTotals(completed=2, failed=1, seconds=1.5, uploaded_bytes=150, slots={0: part}),
        "savepoint": SnapshotTotals(),
    }
    memory = MemoryTuner(
        backend="rocksdb", budget_bytes=64 << 20, write_buffer_ratio=0.5, high_prio_pool_ratio=0.1, arena_bytes=1, process_bytes=1 << 30
    )
    parts = SimpleNamespace(
        durable=SimpleNamespace(job_id="j", attempt=1, restored_from=None, completed=list, has_savepoint_dir=False, base=None),
        dry_run=None,
        checkpoints=SimpleNamespace(totals=totals, last_checkpoint=None, last_savepoint=None, failed=1, pending=lambda _: None),
        slots=SimpleNamespace(all=reporting, silence_s=lambda: 0.0),
    )
    return view_of(batches=log, states=states, memory=memory, **cast("Any", vars(parts)))


def test_what_slots_and_batches_report_becomes_samples() -> None:
    """Only what is committed counts; sizes go by the names of states; a slot that has not reported gives nothing."""
    progress = {
        "durationMs": {"addBatch": 40, "triggerExecution": 50},
        "inputRowsPerSecond": float("nan"),
        "sources": [KAFKA, {"description": "FileStreamSource[file:/in]", "numInputRows": 3}],
    }
    found = samples_of("j", seen(), restarts=1, progress=progress, native_metrics=("num-files-at-level", "column-family-as-variable"))
    families(found)  # refuses what Prometheus would
    values = {(one.name, *sorted(one.labels.items())): one.value for one in found}

    def value(name: str, /, **labels: str) -> float:
        return values[(name, *sorted({"job": "j", **labels}.items()))]

    assert value("restarts") == 1
    assert value("trigger_seconds", part="addBatch") == 0.04
    assert value("step_rows_in", uid="u", slot="1") == 5, "the second batch is not committed yet"
    assert value("step_changelog_bytes", uid="u", slot="0") == 11
    assert value("step_seconds", uid="u", slot="0", part="durable") == 0.25
    assert value("step_exchange_wait_seconds", **{"uid": "u", "slot": "0", "for": "send"}) == 1.0
    assert value("timers_fired") == 4
    assert value("state_bytes", uid="u", state="count", slot="0") == 700
    assert value("state_entries", uid="", state="state-9", slot="0") == 1, "a state that only the store knows keeps its number"
    assert value("state_bytes", uid="u", state=RAW_KEYED_NAME, slot="0") == 300
    stated = {one.labels["state"] for one in found if one.name == "state_entries"}
    assert stated == {"count", "state-9"}, "chunks of raw streams are no entries"
    assert value("state_cache_hits", uid="u", state="count", slot="1") == 9
    assert value("state_expired_entries", uid="u", state="count", slot="0") == 12
    assert value("state_cleanup_seconds", uid="u", slot="1") == 0.5
    assert value("state_cleanup_lag", uid="u", slot="1") == 0.25
    assert value("user_metric", uid="u", slot="1", name="seen") == 3
    assert [value("user_metric", uid="u", slot="1", name=f"size.{each}") for each in ("count", "sum", "min", "max")] == [2, 6, 0, 4]
    assert value("source_backlog_rows", source="0 KafkaV2[Subscribe[orders]]") == 30
    assert value("source_partition_backlog_rows", source="0 KafkaV2[Subscribe[orders]]", topic="orders", partition="0") == 20
    assert {one.labels["source"] for one in found if one.name.startswith("source_")} == {"0 KafkaV2[Subscribe[orders]]"}
    assert value("slot_restore_seconds", slot="0") == 1.5
    assert value("slot_managed_budget_bytes", slot="0") == 64 << 20
    assert value("slot_budget_bytes", slot="1") == 1 << 30
    assert value("slot_block_cache_hit_ratio", slot="0") == 0.75
    assert value("rocksdb_num_files_at_level", slot="1", level="0", column_family="default") == 3
    assert value("snapshots", kind="checkpoint", outcome="failed") == 1
    assert value("checkpoint_slot_flush_seconds", slot="0") == 0.02
    assert value("key_group_skew_ratio", uid="u") == 70 * 8 / 160
    assert value("key_group_rows_max", uid="u", slot="0") == 60
    assert value("key_group_rows_mean", uid="u", slot="0") == 20
    assert not [name for name, *labels in values if ("slot", "2") in labels]


def test_the_busiest_key_groups_of_all_slots_come_first() -> None:
    """And no more of them than asked for; slots without rows have no say."""
    idle = Slot(3, report=reported(3, (), 0))
    skew = skew_of([*reporting(), idle], top=3)["u"]
    assert [(one.key_group, one.slot, one.rows) for one in skew.top] == [(6, 1, 70), (3, 0, 60), (1, 0, 20)]
    assert skew_of([idle], top=3) == {}
