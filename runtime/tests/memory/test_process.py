"""The process model: parts add up to the pod, Spark's settings to the parts, and what does not add up is refused with the sum."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import InvalidInputError
from statefulspark.memory.baselines import (
    HEAP_BYTES_MIN,
    JVM_OVERHEAD_BYTES,
    JVM_OVERHEAD_BYTES_TIGHT,
    SLOT_BASELINE_BYTES,
    SLOT_WORK_BYTES_MIN,
)
from statefulspark.memory.driver import plan_driver
from statefulspark.memory.executor import ExecutorRequest, plan_executor, slot_work, smallest_executor_bytes
from statefulspark.memory.process_memory import JvmRequest, ProcessMemory

MIB = 1 << 20
GIB = 1 << 30

part_sizes = st.none() | st.integers(1, 4096).map(lambda mebibytes: mebibytes * MIB)
heap_sizes = st.none() | st.integers(HEAP_BYTES_MIN // MIB, 8192).map(lambda mebibytes: mebibytes * MIB)
managed = st.one_of(
    st.just((None, None)),
    st.integers(MIB, 4 * GIB).map(lambda size_bytes: (size_bytes, None)),
    st.integers(1, 99).map(lambda percent: (None, percent / 100)),
)


@st.composite
def requests(draw: st.DrawFn) -> ExecutorRequest:
    """Anything a manifest can say of an executor."""
    heap_bytes = draw(heap_sizes)
    total = st.integers(512, 65_536).map(lambda mebibytes: mebibytes * MIB)
    managed_bytes, fraction = draw(managed)
    slot_bytes = st.integers(SLOT_BASELINE_BYTES + SLOT_WORK_BYTES_MIN, 4 * GIB)
    return ExecutorRequest(
        slots=draw(st.integers(1, 16)),
        exchange_tasks=draw(st.integers(1, 4)),
        jvm=JvmRequest(
            total_bytes=draw(total if heap_bytes is None else st.none() | total),
            heap_bytes=heap_bytes,
            jvm_overhead_bytes=draw(part_sizes),
            reserve_bytes=draw(part_sizes),
        ),
        python_per_slot_bytes=draw(st.none() | slot_bytes),
        python_per_exchange_task_bytes=draw(part_sizes),
        managed_bytes=managed_bytes,
        managed_fraction=fraction,
        managed_bytes_min=16 * MIB,
    )


def settings_bytes(plan: ProcessMemory) -> int:
    """What Spark asks Kubernetes for, by its own rule: memory + memoryOverhead."""
    conf = plan.spark_conf()
    assert set(conf) == {f"spark.{plan.role}.memory", f"spark.{plan.role}.memoryOverhead"}
    assert all(value.endswith("m") for value in conf.values())
    return sum(int(value[:-1]) for value in conf.values()) * MIB


def planned(request: ExecutorRequest) -> ProcessMemory | None:
    """The plan, or None when it is refused."""
    try:
        return plan_executor(request)
    except InvalidInputError:
        return None


@given(requests())
def test_a_plan_adds_up_and_keeps_what_is_given(request: ExecutorRequest) -> None:
    """Parts add up to the pod, Spark's settings to the same; each part that is given is as given, each that is not is as the rules say."""
    plan = planned(request)
    if plan is None:
        return
    size = {part.name: part.each_bytes for part in plan.parts}
    count = {part.name: part.count for part in plan.parts}
    assert sum(size[name] * count[name] for name in size) == plan.total_bytes == settings_bytes(plan)
    assert request.jvm.total_bytes in (None, plan.total_bytes)
    assert request.jvm.heap_bytes in (None, size["heap"])
    assert request.jvm.jvm_overhead_bytes in (None, size["jvmOverhead"])
    assert request.python_per_slot_bytes in (None, size["pythonPerSlot"])
    assert request.python_per_exchange_task_bytes in (None, size["pythonPerExchangeTask"])
    assert request.managed_bytes in (None, size["managedMemory"])
    assert count["pythonPerSlot"] == count["managedMemory"] == request.slots
    assert count["pythonPerExchangeTask"] == request.exchange_tasks
    assert size["heap"] >= HEAP_BYTES_MIN
    if request.jvm.jvm_overhead_bytes is None:
        least = JVM_OVERHEAD_BYTES_TIGHT if plan.tight else JVM_OVERHEAD_BYTES
        assert size["jvmOverhead"] >= max(least, size["heap"] // 10)
    if request.jvm.reserve_bytes is not None:
        # Spark counts in MiB: less than one may be left over.
        assert request.jvm.reserve_bytes <= size["reserve"] < request.jvm.reserve_bytes + MIB
    else:
        native = sum(size[name] * count[name] for name in size if name not in {"heap", "jvmOverhead", "reserve"})
        assert size["reserve"] >= native / (20 if plan.tight else 10)
    if request.managed_fraction is not None:
        shared = size["managedMemory"] * request.slots
        assert shared - 1 <= plan.total_bytes * request.managed_fraction < shared + request.slots + 1
    work = slot_work(plan)
    assert work.cache_bytes + work.dirty_bytes + work.sort_bytes <= size["pythonPerSlot"] - SLOT_BASELINE_BYTES


@given(requests())
def test_the_smallest_total_is_the_smallest(request: ExecutorRequest) -> None:
    """Where the heap is left open, the smallest memory works, a MiB less does not, and a refusal names it."""
    if request.jvm.heap_bytes is not None:
        return
    smallest = smallest_executor_bytes(request, tight=True)

    def works(total_bytes: int) -> bool:
        plan = planned(replace(request, jvm=replace(request.jvm, total_bytes=total_bytes)))
        return plan is not None and plan.part("managedMemory").each_bytes >= request.managed_bytes_min

    if smallest is None:
        assert not works(1 << 40)
        return
    assert works(smallest)
    assert not works(smallest - MIB)
    for more in (MIB, 7 * MIB, 100 * MIB, GIB, 30 * GIB):
        assert works(smallest + more)


def executor(total_bytes: int | None = None, heap_bytes: int | None = None, **given: float | None) -> ExecutorRequest:
    jvm = JvmRequest(total_bytes=total_bytes, heap_bytes=heap_bytes)
    return replace(ExecutorRequest(slots=2, exchange_tasks=1, jvm=jvm), **given)  # type: ignore[arg-type]  # only sizes are given


def test_parts_in_total_out() -> None:
    """With the heap given and no total, the total is the sum of the parts."""
    plan = plan_executor(executor(heap_bytes=GIB, managed_bytes=128 * MIB, python_per_slot_bytes=256 * MIB))
    assert plan.total_bytes == sum(part.size_bytes for part in plan.parts)
    assert plan.part("heap").size_bytes == GIB
    assert plan.part("managedMemory").size_bytes == 256 * MIB
    assert settings_bytes(plan) == plan.total_bytes


def test_contradictions_are_refused_with_the_sum() -> None:
    """Parts that exceed the whole, and parts that are all given and leave something over, are refused; the text adds them up."""
    whole = executor(total_bytes=2 * GIB, heap_bytes=GIB, managed_bytes=512 * MIB)
    with pytest.raises(InvalidInputError, match=r"1Gi heap \+ 384Mi jvmOverhead \+ .* \+ 2 x 512Mi managedMemory \+ .* not memory = 2Gi"):
        plan_executor(whole)
    given = replace(whole, jvm=replace(whole.jvm, total_bytes=8 * GIB, reserve_bytes=64 * MIB))
    with pytest.raises(InvalidInputError, match=r"64Mi reserve = \d+Mi, not memory = 8Gi\. Set memory to \d+Mi, leave it out, or"):
        plan_executor(given)


def test_too_small_names_the_smallest() -> None:
    """A pod too small for its parts is refused with the sum and with the memory that is enough, which is."""
    request = executor(total_bytes=GIB, managed_bytes=256 * MIB)
    with pytest.raises(InvalidInputError, match=r"480Mi heap .* 2 x 256Mi managedMemory .* more than memory = 1Gi") as refusal:
        plan_executor(request)
    smallest = smallest_executor_bytes(request, tight=True)
    assert smallest is not None
    assert f"at least {smallest // MIB}Mi" in str(refusal.value)
    greedy = executor(total_bytes=GIB, managed_fraction=0.96)
    with pytest.raises(InvalidInputError, match=r"Lower managedMemory\.fraction"):
        plan_executor(greedy)
    with pytest.raises(InvalidInputError, match=r"managedMemory\.size: is required if memory is not set"):
        plan_executor(executor(heap_bytes=GIB))


@given(
    heap=heap_sizes,
    total=st.none() | st.integers(512, 65_536).map(lambda mebibytes: mebibytes * MIB),
    python=part_sizes,
    reserve=part_sizes,
)
def test_the_driver_adds_up(heap: int | None, total: int | None, python: int | None, reserve: int | None) -> None:
    """The driver's parts add up to its pod too, or it is refused with a remedy."""
    try:
        plan = plan_driver(JvmRequest(total_bytes=total, heap_bytes=heap, reserve_bytes=reserve), python)
    except InvalidInputError as error:
        assert error.remedy  # noqa: PT017  a refusal is one of two right answers
        return
    assert settings_bytes(plan) == plan.total_bytes
    assert total in (None, plan.total_bytes)
    assert heap in (None, plan.heap_bytes)


def test_a_driver_too_small_names_the_smallest() -> None:
    """The memory that the refusal names is the smallest that works."""
    with pytest.raises(InvalidInputError, match="Set memory to at least") as refusal:
        plan_driver(JvmRequest(total_bytes=512 * MIB))
    smallest = int(str(refusal.value).rsplit(" ", 1)[1].removesuffix("Mi")) * MIB
    assert plan_driver(JvmRequest(total_bytes=smallest)).total_bytes == smallest
    with pytest.raises(InvalidInputError):
        plan_driver(JvmRequest(total_bytes=smallest - MIB))
