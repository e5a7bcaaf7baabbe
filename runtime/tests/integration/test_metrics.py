"""What a running job shows on /metrics, and what of its memory can be changed while it runs."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from statefulspark.api_server.prometheus import exposition
from statefulspark.config.rocksdb.names import METRICS
from statefulspark.coordinator.controls import MemoryChange
from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark.exchange.config import SlotLogs
from statefulspark.job.metrics.definitions import DEFINITIONS
from statefulspark.job.run.running import RunningJob
from statefulspark.keygroups import key_group_range
from statefulspark.logs.tail import LogTail
from statefulspark.state.store.native_metrics import NATIVE_METRICS

from .oracles import files
from .work import TIMERS, Work, wait_until

MIB = 1 << 20


class Scrape:
    """One look at /metrics, read back by Prometheus's own parser."""

    def __init__(self, job: RunningJob) -> None:
        text = exposition(job, now_ms=lambda: 1_800_000_000_000).decode()
        self.families: dict[str, Metric] = {family.name: family for family in text_string_to_metric_families(text)}

    def values(self, name: str, *by: str, **labels: str) -> dict[Any, float]:
        """Samples with these labels, by the labels named in ``by``."""
        family = self.families.get(f"statefulspark_{name}")
        found: dict[Any, float] = {}
        for one in family.samples if family is not None else ():
            if labels.items() <= one.labels.items():
                key = tuple(one.labels[label] for label in by)
                assert key not in found, (name, key)
                found[key[0] if len(key) == 1 else key] = one.value
        return found

    def value(self, name: str, **labels: str) -> float:
        """The one sample with these labels."""
        (value,) = self.values(name, **labels).values()
        return value


@pytest.fixture
def tail() -> Iterator[LogTail]:
    found = LogTail()
    logging.getLogger().addHandler(found)
    yield found
    logging.getLogger().removeHandler(found)


def rocksdb(*metrics: str, **memory: Any) -> dict[str, Any]:
    return {"stateBackend": {"type": "rocksdb", "rocksdb": {"metrics": list(metrics), "memory": {"fixedPerSlot": "32Mi", **memory}}}}


def test_every_kind_of_figure_of_a_running_job(work: Work) -> None:
    """Rows, timers, states, key groups, caches, checkpoints, memory and all of RocksDB's figures, against what the input says."""
    work.script, work.entrypoint = TIMERS, "alarms"
    work.spec = rocksdb(*METRICS)
    inputs = files(seed=21, number=2)
    rows = [row for each in inputs for row in each]
    for each in inputs:
        work.write(each)
    job = work.start()
    wait_until(lambda: job.status().input_rows == len(rows), 150, "all rows are committed")
    job.trigger_checkpoint(60)
    job.trigger_savepoint(None, 60)
    keys = {row["account"] for row in rows}
    wait_until(lambda: sum(Scrape(job).values("state_entries", "slot", state="last").values()) == len(keys), 30, "states are measured")
    # Figures of RocksDB come with a slot's signs of life, so those of the files may be a second older than the checkpoint.
    sst = "rocksdb_live_sst_files_size_bytes"
    wait_until(lambda: sum(Scrape(job).values(sst, "slot").values()) > 0, 30, "the checkpoint's files are seen")
    look = Scrape(job)
    _check_reported(job, look, len(rows))
    assert sum(look.values("step_rows_in", "slot", uid="alarm").values()) == len(rows) == look.value("input_rows")
    distinct = {(row["account"], row["at"]) for row in rows}
    assert sum(look.values("step_timers_registered", "slot").values()) == len(rows) + sum(1 for row in rows if row["amount"])
    fired, left = look.value("timers_fired"), sum(look.values("state_entries", "slot", state="event-timers").values())
    assert fired == sum(look.values("step_timers_fired", "slot").values()) > 0
    assert left > 0
    assert fired + left <= len(distinct) * 2
    parts = look.values("step_seconds", "part", slot="0")
    assert set(parts) == {"begin", "input", "process", "output", "encode", "durable"}
    assert all(seconds >= 0 for seconds in parts.values())
    assert parts["process"] > 0
    assert parts["durable"] > 0
    assert set(look.values("step_exchange_wait_seconds", "for", slot="1")) == {"slot", "send"}
    assert look.value("trigger_seconds", part="triggerExecution") > 0

    counted = Counter(look.values("key_group_top_rows", "key_group", "slot", uid="alarm"))
    assert 0 < len(counted) <= 5
    for (group, slot), number in counted.items():
        assert int(group) in key_group_range(int(slot), 2, 128)
        assert number >= 1
    assert look.value("key_group_skew_ratio", uid="alarm") == max(counted.values()) * 128 / len(rows)
    lookups = look.values("state_cache_hits", "slot", state="last"), look.values("state_cache_misses", "slot", state="last")
    assert sum(lookups[1].values()) == len(keys), "each key was read from the store once"
    assert sum(lookups[0].values()) > 0

    for kind in ("checkpoint", "savepoint"):
        assert look.value("snapshots", kind=kind, outcome="completed") == 1
        assert look.value("snapshots", kind=kind, outcome="failed") == 0
        assert look.value(f"{kind}_size_bytes") > 0
    sizes = look.values("checkpoint_slot_size_bytes", "slot")
    assert set(sizes) == {"0", "1"}
    assert sum(look.values("checkpoint_slot_uploaded_bytes", "slot").values()) == look.value("checkpoint_uploaded_bytes")

    for slot in ("0", "1"):
        assert look.value("slot_rss_bytes", slot=slot) > look.value("slot_baseline_bytes", slot=slot) > 10 * MIB
        assert 0 < look.value("slot_pss_bytes", slot=slot) <= look.value("slot_rss_bytes", slot=slot)
        assert look.value("slot_managed_budget_bytes", slot=slot) == look.value("slot_managed_bytes", slot=slot) == 32 * MIB
        assert 0 < look.value("slot_managed_used_bytes", slot=slot) < 32 * MIB
    _check_native(look)


def _check_reported(job: RunningJob, look: Scrape, rows: int) -> None:
    """What the source and the function report."""
    status = job.status()
    (source,) = status.sources  # without the tick source
    assert "FileStreamSource" in source.description
    assert (source.backlog_rows, source.backlog_files) == (None, None), "Spark's file source does not say how many files it has not read"
    (registered,) = status.user_metrics["alarm"]
    assert (registered.name, registered.kind, registered.value, set(registered.slots)) == ("alarms.asked", "counter", rows, {0, 1})
    assert look.values("user_metric", "name", "slot", uid="alarm") == {
        ("alarms.asked", str(slot)): n for slot, n in registered.slots.items()
    }


def _check_native(look: Scrape) -> None:
    names = {metric.metric for metric in NATIVE_METRICS.values() if not metric.by_level}
    both = {("0", "default"), ("1", "default")}
    assert [name for name in names if set(look.values(name, "slot", "column_family")) != both] == []
    assert set(look.values("rocksdb_num_files_at_level", "level", slot="0")) == {str(level) for level in range(7)}
    # What must not be zero once rows went through and a checkpoint flushed them.
    for name in ("rocksdb_bytes_written", "rocksdb_iter_bytes_read", "rocksdb_live_sst_files_size_bytes", "rocksdb_estimate_num_keys"):
        assert sum(look.values(name, "slot").values()) > 0, name
    for slot in ("0", "1"):
        assert look.value("rocksdb_block_cache_capacity_bytes", slot=slot) == look.value("slot_block_cache_capacity_bytes", slot=slot)
    assert {name.removeprefix("statefulspark_") for name in look.families} <= set(DEFINITIONS)


def test_native_metrics_are_off_unless_named_and_warnings_come_from_other_machines(work: Work, tail: LogTail) -> None:
    """One that is named appears, without its statistics or a column family; no other one does.

    The slots do not find the driver's socket for log records, as on another machine: heartbeats bring those of WARNING.
    """
    work.script, work.entrypoint = TIMERS, "alarms"
    work.slot_logs = SlotLogs(socket="/nowhere/on/this/machine")
    work.spec = rocksdb("block-cache-capacity")
    work.write(files(seed=22, number=1)[0])
    job = work.start()
    wait_until(lambda: bool(Scrape(job).values("rocksdb_block_cache_capacity_bytes", "slot")), 150, "slots have reported")
    look = Scrape(job)
    assert [name for name in look.families if "rocksdb" in name] == ["statefulspark_rocksdb_block_cache_capacity_bytes"]
    assert "column_family" not in look.families["statefulspark_rocksdb_block_cache_capacity_bytes"].samples[0].labels

    def opened() -> set[object]:
        records, _ = tail.read(after=0, most=1000, level=logging.WARNING, slot=None, uid="alarm")
        return {one.facts.get("slot") for one in records if one.facts["event"] == "opened"}

    wait_until(lambda: opened() == {0, 1}, 60, "both slots have sent their warning")


def capacities(job: RunningJob) -> dict[str, float]:
    """What RocksDB itself says in each slot's process."""
    return Scrape(job).values("rocksdb_block_cache_capacity_bytes", "slot")


def test_memory_is_divided_anew_while_the_job_runs_and_for_slots_that_start_later(work: Work) -> None:
    """RocksDB's own capacity follows in every slot; a killed slot comes back with it; what does not fit changes nothing."""
    work.spec = rocksdb("block-cache-capacity")
    inputs = files(seed=23, number=2)
    work.write(inputs[0])
    job = work.start()
    wait_until(lambda: len(capacities(job)) == 2, 150, "slots have reported")
    first = job.memory()
    assert (first.revision, first.budget_bytes, first.managed_bytes) == (0, 32 * MIB, 32 * MIB)
    assert set(capacities(job).values()) == {int(2.5 * 32 * MIB / 3)}

    tuned = job.tune_memory(MemoryChange(write_buffer_ratio=0.3, managed_bytes=16 * MIB), 30)
    assert (tuned.revision, tuned.slots, tuned.budget_bytes) == (1, (0, 1), 32 * MIB)
    assert (tuned.cache_bytes, tuned.write_buffer_bytes) == (int(2.7 * 16 * MIB / 3), int(2 * 0.3 * 16 * MIB / 3))
    assert set(capacities(job).values()) == {tuned.cache_bytes}
    assert set(Scrape(job).values("slot_write_buffer_capacity_bytes", "slot").values()) == {tuned.write_buffer_bytes}

    for change in (MemoryChange(managed_bytes=33 * MIB), MemoryChange(managed_bytes=MIB), MemoryChange(high_prio_pool_ratio=0.9)):
        with pytest.raises(InvalidInputError) as refused:
            job.tune_memory(change, 5)
        assert refused.value.remedy
    assert job.memory() == tuned

    (victim, _) = job.status().slots
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    wait_until(lambda: job.status().slots[0].epoch > victim.epoch and job.memory().slots == (0, 1), 150, "the slot is back")
    assert set(capacities(job).values()) == {tuned.cache_bytes}

    work.write(inputs[1])
    wait_until(lambda: job.status().input_rows == sum(map(len, inputs)), 150, "batches go on")
    assert {slot.memory.revision for slot in job.status().slots if slot.memory is not None} == {1}


@pytest.mark.exhaustive
def test_there_is_nothing_to_tune_without_rocksdb(work: Work) -> None:
    """A sentence says why, and metrics of memory are left out."""
    work.write(files(seed=24, number=1)[0])
    job = work.start()
    wait_until(lambda: job.status().input_rows == 40, 150, "the batch is committed")
    with pytest.raises(ConflictError, match=r"stateBackend\.type"):
        job.tune_memory(MemoryChange(write_buffer_ratio=0.4), 5)
    assert Scrape(job).values("slot_managed_bytes", "slot") == {}
    job.trigger_checkpoint(60)  # the last batch goes into the store with the next one, or with a checkpoint
    wait_until(lambda: sum(Scrape(job).values("state_entries", "slot", state="number").values()) > 0, 30, "states in memory are measured")
