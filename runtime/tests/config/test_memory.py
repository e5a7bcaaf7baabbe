"""The memory of a job as its manifest says it, and what is refused at submit time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statefulspark.config.manifest import validate_job
from statefulspark.config.memory import JobMemory
from statefulspark.errors import InvalidInputError
from statefulspark.sizes import short_size

MIB = 1 << 20
GIB = 1 << 30


def document(**spec: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"job": {"module": "shop.orders"}, "checkpointing": {"dir": "file:///checkpoints"}}
    return {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "orders"},
        "spec": base | spec,
    }


def plan(**spec: Any) -> JobMemory:
    return validate_job(document(**spec)).spec.memory_plan()


def refusal(**spec: Any) -> str:
    with pytest.raises(InvalidInputError) as caught:
        validate_job(document(**spec))
    return str(caught.value)


def asked_of_kubernetes(memory: JobMemory, role: str) -> int:
    """Spark's rule for a pod's memory request and limit: memory + memoryOverhead, in MiB."""
    conf = memory.spark_conf()
    return sum(int(conf[f"spark.{role}.{name}"].removesuffix("m")) for name in ("memory", "memoryOverhead")) * MIB


def test_the_defaults_are_whole_pods_without_warnings() -> None:
    """Without a word about memory, pods have 2 GiB and 4 GiB, managed memory is 0.4 of the executor, and nothing is to be warned of."""
    memory = plan(parallelism=3)
    assert (memory.driver.total_bytes, memory.executor.total_bytes, memory.executors) == (2 * GIB, 4 * GIB, 3)
    assert memory.total_bytes == 14 * GIB
    assert memory.managed_bytes == int(0.4 * 4096) * MIB
    assert memory.warnings == ()
    assert asked_of_kubernetes(memory, "driver") == 2 * GIB
    assert asked_of_kubernetes(memory, "executor") == 4 * GIB


def test_the_soak_jobs_fit_into_modest_pods() -> None:
    """2 slots with 64 MiB, 128 MiB and 1 GiB each fit 2, 2 and 4 GiB, in comfort."""
    for size, total in (("64Mi", "2Gi"), ("128Mi", "2Gi"), ("1Gi", "4Gi")):
        memory = plan(executor={"slots": 2, "memory": total, "managedMemory": {"size": size}})
        assert memory.warnings == ()
        assert memory.split is not None
        assert memory.split.managed_bytes == memory.managed_bytes


def test_parts_are_the_input_or_the_whole_is() -> None:
    """With the heap given the pod is the sum; the same whole with the other parts gives the same heap back."""
    parts = {"heap": "1Gi", "jvmOverhead": "400Mi", "pythonPerSlot": "256Mi", "pythonPerExchangeTask": "200Mi", "reserve": "100Mi"}
    given = plan(executor={"slots": 2, "memoryParts": parts, "managedMemory": {"size": "256Mi"}}, driver={"memoryParts": {"heap": "1Gi"}})
    assert given.executor.total_bytes == (1024 + 400 + 80 + 2 * 256 + 200 + 2 * 256 + 100) * MIB
    assert asked_of_kubernetes(given, "executor") == given.executor.total_bytes
    assert given.driver.heap_bytes == GIB
    del parts["heap"]
    whole = plan(
        executor={
            "slots": 2,
            "memory": f"{given.executor.total_bytes // MIB}Mi",
            "memoryParts": parts,
            "managedMemory": {"size": "256Mi"},
        }
    )
    assert whole.executor == given.executor


def test_contradictions_spell_the_sum_out() -> None:
    """Parts that all are given and make another sum than memory are refused, for both pods."""
    parts = {"heap": "1Gi", "jvmOverhead": "400Mi", "pythonPerSlot": "256Mi", "pythonPerExchangeTask": "200Mi", "reserve": "100Mi"}
    executor = {"memory": "4Gi", "memoryParts": parts, "managedMemory": {"size": "256Mi"}}
    assert refusal(executor=executor) == (
        "spec.executor.memory: 1Gi heap + 400Mi jvmOverhead + 80Mi pythonDaemon + 256Mi pythonPerSlot + 200Mi pythonPerExchangeTask"
        " + 256Mi managedMemory + 100Mi reserve = 2316Mi, not memory = 4Gi."
        " Set memory to 2316Mi, leave it out, or leave out one of the parts"
    )
    driver = {"memory": "4Gi", "memoryParts": {"heap": "1Gi", "jvmOverhead": "400Mi", "python": "300Mi", "reserve": "50Mi"}}
    assert "1Gi heap + 400Mi jvmOverhead + 300Mi python + 50Mi reserve = 1774Mi, not memory = 4Gi" in refusal(driver=driver)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            {"executor": {"managedMemory": {"size": "4Mi"}}},
            "spec.executor.managedMemory.size: 4Mi per slot is too small for RocksDB. Give at least 16Mi per slot",
        ),
        (
            {"executor": {"managedMemory": {"fraction": 0.001}}},
            "spec.executor.managedMemory.fraction: 4.1Mi per slot is too small for RocksDB. Give at least 16Mi per slot",
        ),
        (
            {"stateBackend": {"rocksdb": {"memory": {"fixedPerSlot": "2Mi"}}}},
            "spec.stateBackend.rocksdb.memory.fixedPerSlot: 2Mi per slot is too small for RocksDB. Give at least 16Mi per slot",
        ),
        (
            {"executor": {"memoryParts": {"heap": "1Gi"}}},
            "spec.executor.managedMemory.size: is required if memory is not set",
        ),
        (
            {"executor": {"memory": "1000000000b"}},
            "spec.executor.memory: is not a whole number of MiB, in which Spark counts memory. Write for example 953Mi",
        ),
        ({"driver": {"memory": "600Mi"}}, "= 988Mi, which is more than memory = 600Mi. Set memory to at least 988Mi"),
        ({"driver": {"memoryParts": {"heap": "256Mi"}}}, "spec.driver.memoryParts.heap: 256Mi is outside of 480Mi .. 1Ti"),
        ({"sparkConf": {"spark.executor.memoryOverhead": "1g"}}, "has its own field in the spec. Set spec.executor.memory instead"),
        ({"sparkConf": {"spark.executor.pyspark.memory": "1g"}}, "Set spec.executor.memoryParts.pythonPerSlot instead"),
        (
            {"stateBackend": {"rocksdb": {"options": {"writebuffer.size": "many"}}}},
            "spec.stateBackend.rocksdb.options.writebuffer.size: not a byte size",
        ),
    ],
)
def test_refused_at_submit_time(spec: dict[str, Any], found: str) -> None:
    """What cannot work names its field, and what is too small the smallest that works."""
    assert found in refusal(**spec)


def test_the_smallest_that_is_named_works() -> None:
    """The memory that a refusal names is accepted, with a warning that it is tight and what would be comfortable, which is."""
    executor = {"slots": 4, "memory": "1Gi", "managedMemory": {"size": "64Mi"}}
    named = refusal(executor=executor).split("at least ")[1].split(",")[0]
    (warning,) = plan(executor=executor | {"memory": named}).warnings
    assert f"executor.memory = {named} is tight" in warning
    comfortable = warning.split(": ")[1].split(" ")[0]
    assert plan(executor=executor | {"memory": comfortable}).warnings == ()


def test_precedence_of_budgets() -> None:
    """A fixed budget wins over managed memory and is what the pod reserves; without either nothing bounds RocksDB, which is said."""
    memory = {"fixedPerSlot": "96Mi"}
    fixed = plan(executor={"managedMemory": {"size": "512Mi"}}, stateBackend={"rocksdb": {"memory": memory}})
    assert fixed.managed_bytes == 96 * MIB
    assert fixed.split is not None
    assert fixed.split.managed_bytes == 96 * MIB
    assert any("fixedPerSlot wins" in warning for warning in fixed.warnings)
    still = plan(stateBackend={"rocksdb": {"memory": memory | {"managed": False}}})
    assert still.split is not None
    unbounded = plan(stateBackend={"rocksdb": {"memory": {"managed": False}}})
    assert unbounded.split is None
    assert any("one instance may take 136Mi" in warning for warning in unbounded.warnings)
    heap = plan(stateBackend={"type": "memory"})
    assert heap.split is None
    assert any("Python heap" in warning for warning in heap.warnings)


def test_the_documented_example_is_what_comes_out() -> None:
    """The table in docs/memory.md."""
    page = (Path(__file__).parents[3] / "docs/memory.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.split("## Example")[1].split("\n## ")[0].splitlines()
        if line[:1] == "|"
    ]
    memory = plan(executor={"slots": 2, "memory": "2Gi", "managedMemory": {"size": "128Mi"}})
    expected = [
        [part.name, f"{part.count} x {short_size(part.each_bytes)}" if part.count > 1 else "", short_size(part.size_bytes)]
        for part in memory.executor.parts
    ]
    assert rows[2:] == [*expected, ["memory", "", "2Gi"]]
    conf = memory.spark_conf()
    assert f"is {conf['spark.executor.memory']} and" in page
    assert f"`spark.executor.memoryOverhead` {conf['spark.executor.memoryOverhead']}." in page


def test_a_large_arena_block_is_a_warning() -> None:
    """RocksDB's own default passes with the smallest budget; an arena block above the mutable limit works, but is warned of."""
    assert plan(executor={"managedMemory": {"size": "16Mi"}}).warnings == ()
    options = {"arena-block-size": "8mb"}
    (warning,) = plan(executor={"managedMemory": {"size": "16Mi"}}, stateBackend={"rocksdb": {"options": options}}).warnings
    assert "at least 27.43Mi" in warning
