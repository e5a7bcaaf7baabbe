"""What the driver and the executors get: processors, memory, slots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from statefulspark.config.base import SCALE, UPGRADE, CelRule, Model, Number, WholeNumber
from statefulspark.config.cores import Cores
from statefulspark.config.problems import Problem
from statefulspark.config.sizes import ByteSize, between, format_size, parse_size

PodTemplate = dict[str, Any]
"""A Kubernetes PodTemplateSpec; the API server checks it."""

_DEFAULT_MANAGED_FRACTION = 0.4


class DriverSpec(Model):
    """The driver process: Spark's driver, the coordinator and the API."""

    cores: Cores = Field(default=1.0, json_schema_extra=UPGRADE)
    """CPU of the driver, 0.1 .. 256 cores."""

    memory: Annotated[ByteSize, between("512Mi")] = Field(default=parse_size("2Gi"), json_schema_extra=UPGRADE)
    """Memory of the whole driver pod, 512Mi .. 1Ti."""

    pod_template: PodTemplate = Field(default_factory=dict, repr=False, json_schema_extra=UPGRADE)
    """Kubernetes pod template that the driver pod starts from."""


class ManagedMemorySpec(Model):
    """Native memory that state backends may use: a size per slot, or a fraction of the executor shared by its slots."""

    cel_rules = (CelRule("!(has(self.size) && has(self.fraction))", "fraction: size and fraction exclude each other. Remove one of them"),)

    size: Annotated[ByteSize, between("1Mi")] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Managed memory of each slot, 1Mi .. 1Ti."""

    fraction: Annotated[Number, Field(gt=0, lt=1)] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Part of the executor's memory that its slots share, between 0 and 1; 0.4 when neither size nor fraction is given."""

    def conflicts(self) -> Iterator[Problem]:
        """Size and fraction exclude each other."""
        if self.size is not None and self.fraction is not None:
            yield Problem("fraction", "size and fraction exclude each other", "Remove one of them")


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

    memory: Annotated[ByteSize, between("512Mi")] = Field(default=parse_size("4Gi"), json_schema_extra=UPGRADE)
    """Memory of the whole executor pod: JVM, Python processes and managed memory; 512Mi .. 1Ti."""

    managed_memory: ManagedMemorySpec = Field(default=ManagedMemorySpec(), json_schema_extra=UPGRADE)
    """Native memory of the slots' state backends, a part of memory."""

    pod_template: PodTemplate = Field(default_factory=dict, repr=False, json_schema_extra=UPGRADE)
    """Kubernetes pod template that executor pods start from."""

    def conflicts(self) -> Iterator[Problem]:
        """Managed memory of all slots stays below the executor's memory."""
        managed = self.managed_memory_per_slot * self.slots
        if managed >= self.memory:
            yield Problem(
                "managedMemory.size",
                f"{self.slots} slots x {format_size(self.managed_memory_per_slot)} = {format_size(managed)}"
                f" leaves nothing of memory = {format_size(self.memory)} for the JVM and Python",
                "Raise memory or lower managedMemory",
            )

    @property
    def managed_memory_per_slot(self) -> int:
        """Bytes of native memory of each slot."""
        if self.managed_memory.size is not None:
            return self.managed_memory.size
        return int(self.memory * (self.managed_memory.fraction or _DEFAULT_MANAGED_FRACTION)) // self.slots

    def instances_for(self, parallelism: int) -> int:
        """Return how many executors run when the job has ``parallelism`` slots."""
        return self.instances if self.instances is not None else -(-parallelism // self.slots)
