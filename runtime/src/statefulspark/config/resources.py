"""What the driver and the executors get: processors, memory, slots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from statefulspark.config.base import SCALE, UPGRADE, CelRule, Model, Number, WholeNumber
from statefulspark.config.cores import Cores
from statefulspark.config.problems import Problem, refused
from statefulspark.config.sizes import ByteSize, between, format_size, parse_size
from statefulspark.memory.baselines import HEAP_BYTES_MIN, MEBIBYTE, SLOT_BASELINE_BYTES, SLOT_WORK_BYTES_MIN
from statefulspark.memory.process import JvmRequest

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
    """Parts of the driver pod's memory. What is not given is worked out."""

    heap: HeapMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Heap of the JVM, 480Mi .. 1Ti; what the other parts leave of memory when not given."""

    jvm_overhead: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """What the JVM takes beside its heap, 1Mi .. 1Ti; a tenth of the heap and at least 384Mi when not given."""

    python: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """The Python process with coordinator, API and the job's own program, 1Mi .. 1Ti; 384Mi when not given."""

    reserve: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Kept free for fragmentation and short peaks, 1Mi .. 1Ti; a tenth of the Python process when not given."""


class DriverSpec(Model):
    """The driver process: Spark's driver, the coordinator and the API."""

    cores: Cores = Field(default=1.0, json_schema_extra=UPGRADE)
    """CPU of the driver, 0.1 .. 256 cores."""

    memory_parts: DriverMemoryParts = Field(default=DriverMemoryParts(), json_schema_extra=UPGRADE)
    """Parts of memory."""

    memory: PodMemory | None = Field(default_factory=lambda given: _unless_heap(given, _DRIVER_MEMORY_BYTES), json_schema_extra=UPGRADE)
    """Memory of the whole driver pod, 512Mi .. 1Ti; the sum of its parts when memoryParts.heap is given, else 2Gi."""

    pod_template: PodTemplate = Field(default_factory=dict, repr=False, json_schema_extra=UPGRADE)
    """Kubernetes pod template that the driver pod starts from."""

    def memory_request(self) -> JvmRequest:
        """What is said of the pod and its JVM."""
        return _jvm_request(self.memory, self.memory_parts)


class ManagedMemorySpec(Model):
    """Native memory that state backends may use: a size per slot, or a fraction of the executor shared by its slots."""

    cel_rules = (CelRule("!(has(self.size) && has(self.fraction))", "fraction: size and fraction exclude each other. Remove one of them"),)

    size: Annotated[ByteSize, between("1Mi")] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Managed memory of each slot, 1Mi .. 1Ti; RocksDB needs at least 16Mi."""

    fraction: Annotated[Number, Field(gt=0, lt=1)] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Part of the executor's memory that its slots share, between 0 and 1; when neither is given 0.4, or what JVM and Python leave."""

    def conflicts(self) -> Iterator[Problem]:
        """Size and fraction exclude each other."""
        if self.size is not None and self.fraction is not None:
            yield Problem("fraction", "size and fraction exclude each other", "Remove one of them")

    @property
    def given(self) -> bool:
        """Whether the manifest says anything of it."""
        return self.size is not None or self.fraction is not None


class ExecutorMemoryParts(Model):
    """Parts of an executor pod's memory besides managedMemory. What is not given is worked out."""

    heap: HeapMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Heap of the JVM, 480Mi .. 1Ti; what the other parts leave of memory when not given."""

    jvm_overhead: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """What the JVM takes beside its heap, 1Mi .. 1Ti; a tenth of the heap and at least 384Mi when not given."""

    python_per_slot: Annotated[ByteSize, between(format_size(SLOT_BASELINE_BYTES + SLOT_WORK_BYTES_MIN))] | None = Field(
        default=None, json_schema_extra=UPGRADE
    )
    """Python process of each slot without managed memory, 144Mi .. 1Ti; what is above 96Mi sorts, caches and collects changes."""

    python_per_exchange_task: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Python worker of each exchange task, 1Mi .. 1Ti; 208Mi when not given."""

    reserve: PartMemory | None = Field(default=None, json_schema_extra=UPGRADE)
    """Kept free for fragmentation and short peaks, 1Mi .. 1Ti; a tenth of Python and managed memory when not given."""


class ExecutorSpec(Model):
    """One executor: a JVM, its slots and its exchange tasks."""

    instances: Annotated[WholeNumber, Field(ge=1, le=32768)] | None = Field(default=None, json_schema_extra=SCALE)
    """Number of executors; when not given, as few as hold all slots."""

    slots: Annotated[WholeNumber, Field(ge=1, le=256)] = Field(default=1, json_schema_extra=UPGRADE)
    """Slots in each executor, 1 .. 256."""

    exchange_tasks: Annotated[WholeNumber, Field(ge=1, le=256)] = Field(default=1, json_schema_extra=UPGRADE)
    """Ordinary Spark tasks (sources, exchanges, sinks) that run beside the slots of each executor, 1 .. 256."""

    cores: Cores = Field(default=1.0, json_schema_extra=UPGRADE)
    """CPU of each executor, 0.1 .. 256 cores; Spark is told slots + exchangeTasks whatever it is."""

    memory_parts: ExecutorMemoryParts = Field(default=ExecutorMemoryParts(), json_schema_extra=UPGRADE)
    """Parts of memory besides managedMemory."""

    memory: PodMemory | None = Field(default_factory=lambda given: _unless_heap(given, _EXECUTOR_MEMORY_BYTES), json_schema_extra=UPGRADE)
    """Memory of the whole executor pod, 512Mi .. 1Ti; the sum of its parts when memoryParts.heap is given, else 4Gi."""

    managed_memory: ManagedMemorySpec = Field(default=ManagedMemorySpec(), json_schema_extra=UPGRADE)
    """Native memory of the slots' state backends, a part of memory."""

    pod_template: PodTemplate = Field(default_factory=dict, repr=False, json_schema_extra=UPGRADE)
    """Kubernetes pod template that executor pods start from."""

    def memory_request(self) -> JvmRequest:
        """What is said of the pod and its JVM."""
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
