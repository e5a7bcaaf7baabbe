"""The memory plan reaches Spark and the slots: each gets the numbers that `statefulspark memory` prints."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from statefulspark.checkpoint.write.inline import InlineLimits
from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.manifest import validate_job
from statefulspark.exchange.config import SlotConfig
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.job.spark import session
from statefulspark.job.spark.session import session_settings
from statefulspark.job.spark.slot_supervisor import POOL
from statefulspark.job.start.manifest_settings import durable_options, slot_options
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

MIB = 1 << 20


def job(**spec: Any) -> StatefulSparkJob:
    base: dict[str, Any] = {"job": {"module": "shop.orders"}, "checkpointing": {"dir": "file:///checkpoints"}}
    metadata = {"name": "orders"}
    return validate_job({"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": metadata, "spec": base | spec})


def config(folder: Path, manifest: StatefulSparkJob) -> SlotConfig:
    """What a slot of the job is told."""
    return SlotConfig(
        coordinator=Endpoint(location="grpc+unix:///nowhere", secret="s"),
        job_name="orders",
        parallelism=2,
        max_parallelism=128,
        steps=b"",
        python_path=(),
        store=open_store(f"file://{folder}", StorageSettings()),
        storage=StorageSettings(),
        **slot_options(manifest),
    )


def mebibytes(settings: dict[str, str], name: str) -> int:
    return int(settings[name].removesuffix("m"))


@pytest.mark.parametrize("master", ["local-cluster[2,3,1024]", "spark://host:7077"])
def test_executors_get_what_the_pod_has(tmp_path: Path, master: str) -> None:
    """Where executors are processes of their own, heap and overhead are the whole pod, and no other setting adds to it."""
    manifest = job(driver={"memory": "3Gi"}, executor={"slots": 2, "memory": "6Gi"})
    settings = session_settings(manifest, master, 2)
    assert mebibytes(settings, "spark.executor.memory") + mebibytes(settings, "spark.executor.memoryOverhead") == 6144
    assert mebibytes(settings, "spark.driver.memory") + mebibytes(settings, "spark.driver.memoryOverhead") == 3072
    assert {name for name in settings if "memory" in name.lower()} == set(manifest.spec.memory_plan().spark_conf())


def test_the_scheduling_pools_are_in_a_file_that_stays() -> None:
    """The JVM reads it again for each session of this process, also after the job, and one of its pools is that of the slots."""
    settings = session_settings(job(), "local[2]", 2)
    pools = Path(settings["spark.scheduler.allocation.file"].removeprefix("file://"))
    assert pools.parent == Path(session.__file__).parent
    assert f'<pool name="{POOL}">' in pools.read_text()


def test_an_embedded_spark_has_both_heaps(tmp_path: Path) -> None:
    """One JVM does the work of driver and executor: it gets the heaps of both; slots keep their budget."""
    manifest = job(executor={"slots": 2, "memory": "4Gi", "managedMemory": {"size": "128Mi"}})
    plan = manifest.spec.memory_plan()
    settings = session_settings(manifest, "local[8]", 2)
    assert mebibytes(settings, "spark.driver.memory") * MIB == plan.driver.heap_bytes + plan.executor.heap_bytes
    assert "spark.executor.memory" not in settings
    assert config(tmp_path, manifest).budget_bytes == 128 * MIB


def test_slots_are_told_their_budgets(tmp_path: Path) -> None:
    """Managed memory per slot, both ratios, and the parts of the Python process; a size is per slot however many slots there are."""
    memory = {"writeBufferRatio": 0.3, "highPrioPoolRatio": 0.2}
    manifest = job(
        executor={"slots": 3, "memory": "6Gi", "managedMemory": {"size": "100Mi"}, "memoryParts": {"pythonPerSlot": "296Mi"}},
        stateBackend={"rocksdb": {"memory": memory}},
    )
    told = config(tmp_path, manifest)
    assert (told.budget_bytes, told.write_buffer_ratio, told.high_prio_pool_ratio) == (100 * MIB, 0.3, 0.2)
    assert told.cache_bytes == told.dirty_bytes == told.sort_bytes == 50 * MIB
    shared = told.for_one_of(4)
    assert (shared.cache_bytes, shared.dirty_bytes, shared.sort_bytes) == (told.cache_bytes // 4,) * 3
    same = {field.name for field in fields(SlotConfig)} - {"cache_bytes", "dirty_bytes", "sort_bytes"}
    assert all(getattr(shared, name) == getattr(told, name) for name in same)


@pytest.mark.parametrize(
    ("memory", "budget"),
    [({}, 100), ({"fixedPerSlot": "64Mi"}, 64), ({"fixedPerSlot": "64Mi", "managed": False}, 64), ({"managed": False}, None)],
)
def test_fixed_wins_over_managed_over_none(tmp_path: Path, memory: dict[str, Any], budget: int | None) -> None:
    """Flink's precedence."""
    manifest = job(executor={"managedMemory": {"size": "100Mi"}}, stateBackend={"rocksdb": {"memory": memory}})
    assert config(tmp_path, manifest).budget_bytes == (None if budget is None else budget * MIB)


@pytest.mark.parametrize(
    ("backend", "heap_timers", "async_snapshots"),
    [
        ({}, False, True),
        ({"rocksdb": {"timerService": "heap"}}, True, True),
        ({"rocksdb": {"timerService": "rocksdb"}}, False, True),
        ({"type": "filesystem", "filesystem": {"asyncSnapshots": False}}, False, False),
        ({"type": "memory", "memory": {"asyncSnapshots": False}}, False, False),
        ({"type": "memory"}, False, True),
    ],
)
def test_slots_are_told_where_timers_lie_and_whether_snapshots_are_asynchronous(
    tmp_path: Path, backend: dict[str, Any], heap_timers: bool, async_snapshots: bool
) -> None:
    slot = config(tmp_path, job(stateBackend=backend))
    assert (slot.heap_timers, slot.async_snapshots) == (heap_timers, async_snapshots)


def test_slots_are_told_how_many_files_to_download_at_once(tmp_path: Path) -> None:
    storage = {"dir": "file:///checkpoints"}
    assert config(tmp_path, job(checkpointing=storage)).restore_threads == 8
    assert config(tmp_path, job(checkpointing={**storage, "restoreThreads": 32})).restore_threads == 32


def test_the_driver_is_told_how_checkpoints_are_taken() -> None:
    """Incremental, and with changelogs of each batch, unless the manifest says otherwise."""
    storage = {"dir": "file:///checkpoints"}
    assert durable_options(job()) == {
        "name": "orders",
        "backend": "rocksdb",
        "savepoint_dir": None,
        "retained": 1,
        "max_age_s": None,
        "incremental": True,
        "inline_limits": InlineLimits(state_bytes=5 * MIB, checkpoint_bytes=10 * MIB),
        "at_least_once": False,
    }
    full = job(
        checkpointing=storage
        | {"mode": "at-least-once", "incremental": False, "savepointDir": "file:///savepoints", "retention": {"count": 3, "maxAge": "7d"}}
    )
    assert durable_options(full) == {
        "name": "orders",
        "backend": "rocksdb",
        "savepoint_dir": "file:///savepoints",
        "retained": 3,
        "max_age_s": 604_800.0,
        "incremental": False,
        "inline_limits": InlineLimits(state_bytes=5 * MIB, checkpoint_bytes=10 * MIB),
        "at_least_once": True,
    }


def test_limits_of_the_memory_backend_reach_driver_and_slots(tmp_path: Path) -> None:
    """Slots of other backends have none: they upload files."""
    manifest = job(stateBackend={"type": "memory", "memory": {"maxStateSize": "1Mi", "maxCheckpointSize": "3Mi"}})
    assert durable_options(manifest)["inline_limits"] == InlineLimits(state_bytes=MIB, checkpoint_bytes=3 * MIB)
    assert config(tmp_path, manifest).inline_max_bytes == 3 * MIB
    assert config(tmp_path, job(stateBackend={"type": "filesystem"})).inline_max_bytes is None
    assert config(tmp_path, job()).inline_max_bytes is None
