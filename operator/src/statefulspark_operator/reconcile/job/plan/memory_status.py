"""The memory plan in a job's status, and events for OOM kills with advice. Pure."""

from __future__ import annotations

from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.memory.process_memory import ProcessMemory
from statefulspark_operator.api.jobs import MEMORY_KILLS_MAX, MemoryKill
from statefulspark_operator.api.memory import MemoryPart, MemoryPlan, PodMemory
from statefulspark_operator.reconcile.job.plan.draft import Draft

_MIB: Final = 1 << 20
_STEP_BYTES: Final = 64 * _MIB
_MORE: Final = 1.25
"""Factor between the memory of a killed executor and the advised memory."""


def memory_plan(spec: StatefulSparkJobSpec, parallelism: int) -> MemoryPlan:
    """The memory breakdown of the job's pods."""
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


def report_oom_kills(draft: Draft) -> None:
    """Records an event for each new OOM kill.

    There are two sources: Kubernetes reports OOMKilled for an executor's JVM, and the slots in a container report the kernel's count of killed
    processes, which includes slots.
    """
    counts: dict[str, tuple[int, int | None]] = {lost.pod: (1, lost.limit_bytes) for lost in draft.observed.out_of_memory}
    for slot in draft.observed.driver.slots if draft.observed.driver is not None else ():
        pod = slot.host or f"executor-{slot.executor}"
        if slot.oom_kills > counts.get(pod, (0, None))[0]:
            counts[pod] = (slot.oom_kills, slot.limit_bytes)
    told = {kill.pod: kill for kill in draft.status.memory_kills}
    for pod, (kills, limit_bytes) in sorted(counts.items()):
        before = told[pod].kills if pod in told else 0
        if kills <= before:
            continue
        told.pop(pod, None)
        told = {pod: MemoryKill(pod=pod, kills=kills, at=draft.now), **told}
        draft.record_event("OOMKilled", _advice(draft, pod, kills - before, limit_bytes), warning=True)
    draft.set(memory_kills=tuple(told.values())[:MEMORY_KILLS_MAX])


def _advice(draft: Draft, pod: str, kills: int, limit_bytes: int | None) -> str:
    spec, planned = draft.observed.spec, draft.status.memory_plan
    limit_bytes = limit_bytes or (planned.executor.limit_bytes if planned is not None and planned.executor is not None else None)
    processes = "A process" if kills == 1 else f"{kills} processes"
    text = f"{processes} of executor {pod} {'was' if kills == 1 else 'were'} OOM-killed"
    if limit_bytes is None:
        return f"{text}, and its slots will be restarted and restored. Increase spec.executor.memory"
    text += f" at the limit of {limit_bytes // _MIB} MiB"
    if planned is not None and planned.executor is not None:
        text += f" ({', '.join(f'{part.name} {part.size_bytes // _MIB}' for part in planned.executor.parts)})"
    advised = -(-int(limit_bytes * _MORE) // _STEP_BYTES) * _STEP_BYTES
    fewer = f", or lower spec.executor.slots from {spec.executor.slots}" if spec is not None and spec.executor.slots > 1 else ""
    return f"{text}; its slots are restarted. Set spec.executor.memory to {advised // _MIB}Mi{fewer} if this happens again"
