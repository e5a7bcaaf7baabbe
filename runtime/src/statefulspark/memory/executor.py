"""Memory of an executor pod: its JVM, the processes of its slots, their managed memory, its exchange tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark.memory.baselines import (
    EXCHANGE_BASELINE_BYTES,
    EXCHANGE_BATCHES_BYTES,
    HEAP_BYTES_COMFORTABLE,
    JVM_OVERHEAD_BYTES,
    JVM_OVERHEAD_OF_HEAP,
    MEBIBYTE,
    PYTHON_DAEMON_BYTES,
    RESERVE_SHARE,
    SLOT_BASELINE_BYTES,
    SLOT_WORK_BYTES_MAX,
    SLOT_WORK_BYTES_MIN,
)
from statefulspark.memory.process_memory import JvmRequest, Part, ProcessMemory, fill_pod
from statefulspark.memory.split import exact
from statefulspark.sizes import short_size

EXECUTOR: Final = "executor"
MANAGED: Final = "managedMemory"
PYTHON_PER_SLOT: Final = "pythonPerSlot"
PYTHON_PER_EXCHANGE_TASK: Final = "pythonPerExchangeTask"

_MANAGED_FRACTION: Final = 0.4
"""Flink's default of ``taskmanager.memory.managed.fraction``."""
_WORK_SHARE: Final = 10
"""Slots get a tenth of the pod to sort, cache and collect changes, within bounds."""
_TOTAL_MEBIBYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRequest:
    """The manifest's memory settings of an executor; None is computed.

    Attributes:
        slots: Slots in the executor, at least 1.
        exchange_tasks: Ordinary Spark tasks beside them, at least 1.
        jvm: The whole pod, the JVM's parts and the reserve.
        python_per_slot_bytes: Python process of a slot, without managed memory.
        python_per_exchange_task_bytes: Python worker of an exchange task.
        managed_bytes: Managed memory of one slot.
        managed_fraction: Part of the pod that the slots share as managed memory.
        managed_bytes_min: Smallest managed memory of one slot that works.
    """

    slots: int
    exchange_tasks: int
    jvm: JvmRequest
    python_per_slot_bytes: int | None = None
    python_per_exchange_task_bytes: int | None = None
    managed_bytes: int | None = None
    managed_fraction: float | None = None
    managed_bytes_min: int = MEBIBYTE


def plan_executor(request: ExecutorRequest) -> ProcessMemory:
    """Divide an executor pod.

    Raises:
        InvalidInputError: The parts do not fit the whole or do not add up; the text spells the sum out and names the smallest whole that
            works. ``field`` is relative to the executor.
    """
    try:
        return _plan(request, tight=False)
    except InvalidInputError as error:
        if error.field != "memory" or error.remedy is not None:
            raise
    try:
        return _plan(request, tight=True)
    except InvalidInputError as error:
        raise InvalidInputError(error.message, field=error.field, remedy=_remedy(request)) from None


def smallest_executor_bytes(request: ExecutorRequest, *, tight: bool) -> int | None:
    """Return the smallest memory of the whole pod at which the rest works; without ``tight``, works in comfort.

    Returns:
        Whole MiB, in bytes; None when no size does.
    """
    low, high = 1, _TOTAL_MEBIBYTES_MAX
    if not _works(request, high, tight=tight):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _works(request, middle, tight=tight) else (middle + 1, high)
    return low * MEBIBYTE


def managed_bytes_per_slot(plan: ProcessMemory) -> int:
    """Return the managed memory of one slot."""
    return plan.part(MANAGED).each_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotWork:
    """Memory budgets of a slot's Python process, for all its keyed steps together.

    Attributes:
        cache_bytes: Decoded objects.
        dirty_bytes: Changes of one batch; more spill to disk.
        sort_bytes: Rows of one batch while they are put in order; more spill to disk.
    """

    cache_bytes: int
    dirty_bytes: int
    sort_bytes: int


def slot_work(plan: ProcessMemory) -> SlotWork:
    """Divide what a slot's Python process has beyond what it takes from the start: a quarter each, and one for batches in flight."""
    quarter_bytes = (plan.part(PYTHON_PER_SLOT).each_bytes - SLOT_BASELINE_BYTES) // 4
    return SlotWork(cache_bytes=quarter_bytes, dirty_bytes=quarter_bytes, sort_bytes=quarter_bytes)


def _plan(request: ExecutorRequest, *, tight: bool) -> ProcessMemory:
    python = _python_parts(request, tight=tight)
    managed = Part(name=MANAGED, each_bytes=_managed_bytes(request, python), count=request.slots)
    return fill_pod(EXECUTOR, request.jvm, (*python, managed), tight=tight, whole_mebibytes=request.managed_fraction is None)


def _python_parts(request: ExecutorRequest, *, tight: bool) -> tuple[Part, ...]:
    slot_bytes = request.python_per_slot_bytes
    if slot_bytes is None:
        work_bytes = SLOT_WORK_BYTES_MIN if tight else SLOT_WORK_BYTES_MAX
        if request.jvm.total_bytes is not None:
            share_bytes = _whole_mebibytes(request.jvm.total_bytes // (_WORK_SHARE * request.slots))
            work_bytes = min(max(share_bytes, SLOT_WORK_BYTES_MIN), work_bytes)
        slot_bytes = SLOT_BASELINE_BYTES + work_bytes
    task_bytes = request.python_per_exchange_task_bytes or EXCHANGE_BASELINE_BYTES + EXCHANGE_BATCHES_BYTES
    return (
        Part(name="pythonDaemon", each_bytes=PYTHON_DAEMON_BYTES),
        Part(name=PYTHON_PER_SLOT, each_bytes=slot_bytes, count=request.slots),
        Part(name=PYTHON_PER_EXCHANGE_TASK, each_bytes=task_bytes, count=request.exchange_tasks),
    )


def _managed_bytes(request: ExecutorRequest, python: tuple[Part, ...]) -> int:
    """Managed memory of one slot: as given; else Flink's fraction, as far as JVM and Python leave it."""
    if request.managed_bytes is not None:
        return request.managed_bytes
    total_bytes = request.jvm.total_bytes
    if total_bytes is None:
        raise InvalidInputError(
            "is required if memory is not set, because the default is a fraction of memory",
            field="managedMemory.size",
            remedy="Set managedMemory.size or memory",
        )
    fraction = exact(request.managed_fraction if request.managed_fraction is not None else _MANAGED_FRACTION)
    share_bytes = int(total_bytes * fraction) // request.slots
    if request.managed_fraction is not None:
        return share_bytes
    heap_bytes = request.jvm.heap_bytes or HEAP_BYTES_COMFORTABLE
    overhead_bytes = request.jvm.jvm_overhead_bytes or max(JVM_OVERHEAD_BYTES, heap_bytes // JVM_OVERHEAD_OF_HEAP)
    python_bytes = sum(part.size_bytes for part in python)
    room_bytes = total_bytes - heap_bytes - overhead_bytes
    if request.jvm.reserve_bytes is None:
        room_bytes = room_bytes * RESERVE_SHARE // (RESERVE_SHARE + 1) - MEBIBYTE
    else:
        room_bytes -= request.jvm.reserve_bytes
    left_bytes = (room_bytes - python_bytes) // request.slots
    return max(_whole_mebibytes(min(share_bytes, left_bytes)), -(-request.managed_bytes_min // MEBIBYTE) * MEBIBYTE)


def _works(request: ExecutorRequest, mebibytes: int, *, tight: bool) -> bool:
    try:
        plan = _plan(replace(request, jvm=replace(request.jvm, total_bytes=mebibytes * MEBIBYTE)), tight=tight)
    except InvalidInputError:
        return False
    return managed_bytes_per_slot(plan) >= request.managed_bytes_min


def _remedy(request: ExecutorRequest) -> str:
    smallest = smallest_executor_bytes(request, tight=True)
    if smallest is None:
        return "Lower managedMemory.fraction: with it no memory is enough"
    if request.managed_fraction is not None:
        return f"Set memory to at least {short_size(smallest)}, or lower managedMemory.fraction"
    return f"Set memory to at least {short_size(smallest)}, or lower managedMemory or the number of slots"


def _whole_mebibytes(size_bytes: int) -> int:
    return size_bytes // MEBIBYTE * MEBIBYTE
