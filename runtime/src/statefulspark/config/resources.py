"""What the driver and the executors get: processors, memory, slots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from statefulspark.config.base import SCALE, UPGRADE, CelRule, Model, Number, WholeNumber
from statefulspark.config.problems import Problem, refused
from statefulspark.config.values.cores import Cores
from statefulspark.config.values.sizes import ByteSize, between, format_size, parse_size
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT
from statefulspark.memory.baselines import HEAP_BYTES_MIN, MEBIBYTE, SLOT_BASELINE_BYTES, SLOT_WORK_BYTES_MIN
from statefulspark.memory.process_memory import JvmRequest

PodTemplate = dict[str, Any]
"""A Kubernetes PodTemplateSpec; the API server checks it."""

_DRIVER_MEMORY_BYTES = parse_size("2Gi")
_EXECUTOR_MEMORY_BYTES = parse_size("4Gi")


def _whole_mebibytes(size_bytes: int) -> int:
    if size_bytes % MEBIBYTE:
        rounded = format_size(size_bytes // MEBIBYTE * MEBIBYTE)
        raise refused("is not a whole number of MiB, in which Spark counts memory", f"Write for example {rounded}")
    return size_bytes


PodMemory = Annotated[ByteSize, between("512Mi"), AfterValidator(_whole_mebibytes)]
"""Memory of a whole pod."""
HeapMemory = Annotated[ByteSize, between(format_size(HEAP_BYTES_MIN)), AfterValidator(_whole_mebibytes)]
"""A JVM's heap."""
PartMemory = Annotated[ByteSize, between("1Mi")]
"""Another part of a pod's memory."""


class DriverMemoryParts(Model):
    """Parts of the driver pod's memory. Parts that are not set are computed."""

    heap: HeapMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """JVM heap (480Mi to 1Ti). Defaults to the memory that the other parts leave."""

    jvm_overhead: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Off-heap memory of the JVM (1Mi to 1Ti). Defaults to 10% of the heap, and at least 384Mi."""

    python: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Python process that runs the coordinator, the API and the job's program (1Mi to 1Ti). Defaults to 384Mi."""

    reserve: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Memory kept free for fragmentation and short peaks (1Mi to 1Ti). Defaults to 10% of the Python process."""


class DriverSpec(Model):
    """The driver process: Spark's driver, the coordinator and the API."""

    cores: Cores = Field(default=1.0, json_schema_extra=UPGRADE)
    """CPU cores of the driver (0.1 to 256)."""

    memory_parts: DriverMemoryParts = Field(default=DriverMemoryParts(), json_schema_extra=UPGRADE)
    """Parts of the driver pod's memory."""

    memory: PodMemory | None = Field(default_factory=lambda given: _unless_heap(given, _DRIVER_MEMORY_BYTES), json_schema_extra=UPGRADE)
    """Total memory of the driver pod (512Mi to 1Ti). Defaults to the sum of its parts if memoryParts.heap is set, otherwise to 2Gi."""

    pod_template: PodTemplate = Field(default_factory=dict, repr=False, json_schema_extra=UPGRADE)
    """Pod template on which the driver pod is based."""

    def memory_request(self) -> JvmRequest:
        """Messages about the pod and its JVM."""
        return _jvm_request(self.memory, self.memory_parts)


class ManagedMemorySpec(Model):
    """Native memory for state backends: a size per slot, or a fraction of the executor's memory shared by its slots."""

    cel_rules = (
        CelRule("!(has(self.size) && has(self.fraction))", "fraction: size and fraction are mutually exclusive. Remove one of them"),
    )

    size: Annotated[ByteSize, between("1Mi")] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Managed memory of each slot (1Mi to 1Ti). RocksDB needs at least 16Mi."""

    fraction: Annotated[Number, Field(gt=0, lt=1)] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Fraction of the executor's memory shared by its slots (between 0 and 1). If neither size nor fraction is set, defaults to 0.4, or
    less if the JVM and Python leave less."""

    def conflicts(self) -> Iterator[Problem]:
        """Size and fraction are mutually exclusive."""
        if self.size is not None and self.fraction is not None:
            yield Problem("fraction", "size and fraction are mutually exclusive", "Remove one of them")

    @property
    def given(self) -> bool:
        """Whether the manifest says anything of it."""
        return self.size is not None or self.fraction is not None


class ExecutorMemoryParts(Model):
    """Parts of an executor pod's memory other than managedMemory. Parts that are not set are computed."""

    heap: HeapMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """JVM heap (480Mi to 1Ti). Defaults to the memory that the other parts leave."""

    jvm_overhead: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Off-heap memory of the JVM (1Mi to 1Ti). Defaults to 10% of the heap, and at least 384Mi."""

    python_per_slot: Annotated[ByteSize, between(format_size(SLOT_BASELINE_BYTES + SLOT_WORK_BYTES_MIN))] | None = Field(
        default=None, json_schema_extra=UPGRADE
    )
    """Python process of each slot, without managed memory (144Mi to 1Ti). The memory above 96Mi is used to sort rows, cache state and
    collect changes."""

    python_per_exchange_task: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Python worker of each exchange task (1Mi to 1Ti). Defaults to 208Mi."""

    reserve: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Memory kept free for fragmentation and short peaks (1Mi to 1Ti). Defaults to 10% of Python and managed memory."""


class ExecutorSpec(Model):
    """One executor: a JVM, its slots and its exchange tasks."""

    instances: Annotated[WholeNumber, Field(ge=1, le=MAX_PARALLELISM_LIMIT)] | None = Field(default=None, json_schema_extra=SCALE)
    """Number of executors. Defaults to the smallest number that fits all slots."""

    slots: Annotated[WholeNumber, Field(ge=1, le=256)] = Field(default=1, json_schema_extra=UPGRADE)
    """Slots per executor (1 to 256)."""

    exchange_tasks: Annotated[WholeNumber, Field(ge=1, le=256)] = Field(default=1, json_schema_extra=UPGRADE)
    """Number of regular Spark tasks (sources, exchanges, sinks) that run concurrently with the slots in each executor (1 to 256)."""

    cores: Cores = Field(default=1.0, json_schema_extra=UPGRADE)
    """CPU cores of each executor (0.1 to 256). Spark is always configured with slots + exchangeTasks cores, regardless of this value."""

    memory_parts: ExecutorMemoryParts = Field(default=ExecutorMemoryParts(), json_schema_extra=UPGRADE)
    """Parts of the executor pod's memory other than managedMemory."""

    memory: PodMemory | None = Field(default_factory=lambda given: _unless_heap(given, _EXECUTOR_MEMORY_BYTES), json_schema_extra=UPGRADE)
    """Total memory of an executor pod (512Mi to 1Ti). Defaults to the sum of its parts if memoryParts.heap is set, otherwise to 4Gi."""

    managed_memory: ManagedMemorySpec = Field(default=ManagedMemorySpec(), json_schema_extra=UPGRADE)
    """Native memory of the slots' state backends. Part of memory."""

    pod_template: PodTemplate = Field(default_factory=dict, repr=False, json_schema_extra=UPGRADE)
    """Pod template on which executor pods are based."""

    def memory_request(self) -> JvmRequest:
        """Messages about the pod and its JVM."""
        return _jvm_request(self.memory, self.memory_parts)

    def instances_for(self, parallelism: int) -> int:
        """Return how many executors run when the job has ``parallelism`` slots."""
        return self.instances if self.instances is not None else -(-parallelism // self.slots)


def _unless_heap(given: dict[str, Any], default_bytes: int) -> int | None:
    """Memory of a pod for which the manifest gives none: the sum of the parts when the heap is among them."""
    return default_bytes if given["memory_parts"].heap is None else None


def _jvm_request(memory_bytes: int | None, parts: DriverMemoryParts | ExecutorMemoryParts) -> JvmRequest:
    return JvmRequest(
        total_bytes=memory_bytes,
        heap_bytes=parts.heap,
        jvm_overhead_bytes=parts.jvm_overhead,
        reserve_bytes=parts.reserve,
    )
