"""The memory model of a process: every part of a pod's memory, their sum, and the Spark configuration that follows. Pure.

Either the pod's total memory is set, and the JVM heap is what the other parts leave (Flink's ``process.size``), or the heap is set, and the
total is the sum. If the total and all parts are set, they must add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark.memory.baselines import (
    HEAP_BYTES_MIN,
    JVM_OVERHEAD_BYTES,
    JVM_OVERHEAD_BYTES_TIGHT,
    JVM_OVERHEAD_OF_HEAP,
    MEBIBYTE,
    RESERVE_SHARE,
    RESERVE_SHARE_TIGHT,
)
from statefulspark.sizes import short_size

HEAP: Final = "heap"
JVM_OVERHEAD: Final = "jvmOverhead"
RESERVE: Final = "reserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a process's memory.

    Attributes:
        name: As the field of the manifest that sets it, where there is one.
        each_bytes: Size of one.
        count: Number of such parts.
    """

    name: str
    each_bytes: int
    count: int = 1

    @property
    def size_bytes(self) -> int:
        """Size of all."""
        return self.each_bytes * self.count

    def __str__(self) -> str:
        times = f"{self.count} x " if self.count > 1 else ""
        return f"{times}{short_size(self.each_bytes)} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmRequest:
    """The manifest's memory settings of a pod; None is computed.

    Attributes:
        total_bytes: Memory of the whole pod, whole MiB. Not None unless ``heap_bytes`` is given.
        heap_bytes: The JVM's heap, whole MiB, at least `HEAP_BYTES_MIN`.
        jvm_overhead_bytes: Memory of the JVM in addition to its heap.
        reserve_bytes: Kept free for fragmentation and short peaks.
    """

    total_bytes: int | None = None
    heap_bytes: int | None = None
    jvm_overhead_bytes: int | None = None
    reserve_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """Memory of a pod with a JVM and its Python processes.

    Attributes:
        role: ``driver`` or ``executor``.
        parts: All of it, the heap first; they add up to the pod's memory request and limit, which is whole MiB.
        tight: True if it fits only with less than the recommended memory in each part.
    """

    role: str
    parts: tuple[Part, ...]
    tight: bool = False

    def part(self, name: str) -> Part:
        """Return the part called ``name``.

        Raises:
            KeyError: There is none.
        """
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)

    @property
    def total_bytes(self) -> int:
        """The pod's memory request and limit."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def heap_bytes(self) -> int:
        """The JVM's ``-Xmx``."""
        return self.part(HEAP).size_bytes

    def spark_conf(self) -> dict[str, str]:
        """Return Spark's settings. Spark asks Kubernetes for memory + memoryOverhead, which is exactly ``total_bytes``."""
        return {
            f"spark.{self.role}.memory": f"{self.heap_bytes // MEBIBYTE}m",
            f"spark.{self.role}.memoryOverhead": f"{(self.total_bytes - self.heap_bytes) // MEBIBYTE}m",
        }

    def spelled_out(self) -> str:
        """Return the sum as text: ``1Gi heap + 2 x 128Mi managedMemory = 1280Mi``."""
        return f"{_sum(self.parts)} = {short_size(self.total_bytes)}"


def fill_pod(
    role: str, request: JvmRequest, others: tuple[Part, ...], *, tight: bool = False, whole_mebibytes: bool = True
) -> ProcessMemory:
    """Work out the JVM's parts and the reserve beside ``others``, which are fixed.

    Args:
        role: ``driver`` or ``executor``.
        request: The manifest's settings.
        others: Python processes and managed memory.
        tight: Leave less beside the heap and in reserve than is comfortable.
        whole_mebibytes: Round the reserve up to whole MiB. False when ``others`` grow with the total: a larger total must leave a heap
            that is not smaller.

    Raises:
        InvalidInputError: The parts do not fit or do not add up. ``field`` is ``memory``; the text spells the sum out.
    """
    reserve_bytes = request.reserve_bytes
    if reserve_bytes is None:
        unit_bytes = MEBIBYTE if whole_mebibytes else 1
        share = RESERVE_SHARE_TIGHT if tight else RESERVE_SHARE
        reserve_bytes = -(-sum(part.size_bytes for part in others) // (share * unit_bytes)) * unit_bytes
    if request.heap_bytes is not None:
        return _with_heap(role, request, request.heap_bytes, others, reserve_bytes)
    if request.total_bytes is None:
        raise InvalidInputError("neither memory nor the heap is set", field="memory", remedy="Set memory or memoryParts.heap")
    room_bytes = request.total_bytes - reserve_bytes - sum(part.size_bytes for part in others)
    least_bytes = JVM_OVERHEAD_BYTES_TIGHT if tight else JVM_OVERHEAD_BYTES
    if request.jvm_overhead_bytes is not None:
        heap_bytes, least_bytes = room_bytes - request.jvm_overhead_bytes, request.jvm_overhead_bytes
    else:
        heap_bytes = min(room_bytes - least_bytes, room_bytes * JVM_OVERHEAD_OF_HEAP // (JVM_OVERHEAD_OF_HEAP + 1))
    heap_bytes = heap_bytes // MEBIBYTE * MEBIBYTE
    if heap_bytes < HEAP_BYTES_MIN:
        parts = _parts(HEAP_BYTES_MIN, least_bytes, others, reserve_bytes)
        sum_bytes = sum(part.size_bytes for part in parts)
        raise InvalidInputError(
            f"{_sum(parts)} = {short_size(sum_bytes)}, which is more than memory = {short_size(request.total_bytes)}", field="memory"
        )
    # The remainder after whole MiB of heap goes to a part that is not fixed.
    if request.jvm_overhead_bytes is None:
        overhead_bytes = room_bytes - heap_bytes
    else:
        overhead_bytes = request.jvm_overhead_bytes
        reserve_bytes += room_bytes - heap_bytes - overhead_bytes
    return ProcessMemory(role=role, parts=_parts(heap_bytes, overhead_bytes, others, reserve_bytes), tight=tight)


def _with_heap(role: str, request: JvmRequest, heap_bytes: int, others: tuple[Part, ...], reserve_bytes: int) -> ProcessMemory:
    """The heap is given: without a whole its sum is the whole, with one the reserve takes what is left."""
    overhead_bytes = request.jvm_overhead_bytes
    if overhead_bytes is None:
        overhead_bytes = max(JVM_OVERHEAD_BYTES, -(-heap_bytes // JVM_OVERHEAD_OF_HEAP))
    parts = _parts(heap_bytes, overhead_bytes, others, reserve_bytes)
    sum_bytes = sum(part.size_bytes for part in parts)
    total_bytes = request.total_bytes if request.total_bytes is not None else -(-sum_bytes // MEBIBYTE) * MEBIBYTE
    left_bytes = total_bytes - sum_bytes
    if left_bytes < 0 or (left_bytes >= MEBIBYTE and request.reserve_bytes is not None):
        remedy = f"Set memory to {short_size(-(-sum_bytes // MEBIBYTE) * MEBIBYTE)}, leave it out, or leave out one of the parts"
        raise InvalidInputError(
            f"{_sum(parts)} = {short_size(sum_bytes)}, not memory = {short_size(total_bytes)}", field="memory", remedy=remedy
        )
    return ProcessMemory(role=role, parts=_parts(heap_bytes, overhead_bytes, others, reserve_bytes + left_bytes))


def _parts(heap_bytes: int, overhead_bytes: int, others: tuple[Part, ...], reserve_bytes: int) -> tuple[Part, ...]:
    return (
        Part(name=HEAP, each_bytes=heap_bytes),
        Part(name=JVM_OVERHEAD, each_bytes=overhead_bytes),
        *others,
        Part(name=RESERVE, each_bytes=reserve_bytes),
    )


def _sum(parts: tuple[Part, ...]) -> str:
    return " + ".join(str(part) for part in parts)
