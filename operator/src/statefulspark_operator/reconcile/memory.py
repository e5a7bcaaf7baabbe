"""The memory plan of a job in its status: the runtime's own calculation, the one by which pods are made. Pure."""

from __future__ import annotations

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.memory.process import ProcessMemory
from statefulspark_operator.api.memory import MemoryPart, MemoryPlan, PodMemory


def memory_plan(spec: StatefulSparkJobSpec, parallelism: int) -> MemoryPlan:
    """What the memory of the job's pods is for."""
    plan = spec.memory_plan(parallelism)
    return MemoryPlan(
        driver=_pod(plan.driver),
        executor=_pod(plan.executor),
        managed_bytes_per_slot=plan.managed_bytes,
        warnings=plan.warnings[:16],
    )


def _pod(memory: ProcessMemory) -> PodMemory:
    parts = tuple(MemoryPart(name=part.name, size_bytes=part.size_bytes) for part in memory.parts)
    return PodMemory(limit_bytes=memory.total_bytes, parts=parts)
