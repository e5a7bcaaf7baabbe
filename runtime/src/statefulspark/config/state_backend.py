"""Where a slot keeps its state, and how RocksDB is tuned. Names and defaults are Flink's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema

from statefulspark.config.base import UPGRADE, CelRule, Expected, Flag, Model, Number, Text, no_server_default
from statefulspark.config.problems import Problem, did_you_mean, refused
from statefulspark.config.rocksdb.names import METRICS
from statefulspark.config.rocksdb.options import BLOCK_BASED, OPTIONS, REFUSED, PredefinedOptions, choose, read_option
from statefulspark.config.values.scalars import ScalarText
from statefulspark.config.values.sizes import ByteSize, between
from statefulspark.errors import InvalidInputError
from statefulspark.memory.split import POOL_REMEDY, exact, pool_problem

_FLINK_PREFIX: Final = "state."


class StateBackendType(StrEnum):
    """The state backends that are built in."""

    MEMORY = "memory"
    FILESYSTEM = "filesystem"
    ROCKSDB = "rocksdb"


BACKENDS: Final = tuple(each.value for each in StateBackendType)
"""Names of the state backends that are built in."""
_FLINK_NAMES: Final = {"hashmap": StateBackendType.FILESYSTEM.value, "jobmanager": StateBackendType.MEMORY.value}
"""Flink's names of a state backend and of a checkpoint storage, which are one choice here."""
_CLASS: Final = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"


def _known_backend(name: str) -> str:
    if name not in BACKENDS and re.fullmatch(_CLASS, name) is None:
        near = f"Flink's {name} is {_FLINK_NAMES[name]} here" if name in _FLINK_NAMES else did_you_mean(name, BACKENDS)
        raise refused("is not a state backend", f"{near}{'' if near.endswith('?') else '.'} Or name a StateBackend as module:Class")
    return name


BackendName = Annotated[
    str,
    StringConstraints(max_length=512),
    AfterValidator(_known_backend),
    WithJsonSchema({"type": "string", "maxLength": 512, "pattern": f"^({'|'.join(BACKENDS)}|{_CLASS})$"}),
    Expected(f"{', '.join(BACKENDS)} or module:Class"),
]
"""A state backend that is built in, or a `StateBackend` of one's own as ``module:Class``."""


def _known_option(name: str) -> str:
    if name not in OPTIONS and name not in REFUSED and name != BLOCK_BASED:
        raise refused("is not a RocksDB option", did_you_mean(name, OPTIONS))
    return name


def _known_metric(name: str) -> str:
    if name not in METRICS:
        raise refused("is not a RocksDB metric", did_you_mean(name, METRICS))
    return name


def _own_option(name: str) -> str:
    if "." not in name:
        raise refused("has no dot", "Choose a name such as my.block-size")
    if name.startswith(_FLINK_PREFIX):
        raise refused("begins with state., like Flink's own settings", "Choose a name such as my.block-size, or set the field for it")
    return name


class TimerServiceType(StrEnum):
    """Where a slot with RocksDB keeps timers, by Flink's names."""

    ROCKSDB = "rocksdb"
    HEAP = "heap"


class FilesystemBackendSpec(Model):
    """Configuration of the filesystem state backend."""

    async_snapshots: Flag = Field(default=True, json_schema_extra=UPGRADE)
    """True to write snapshots while batches go on. If false, batches wait until the snapshot of their slot is written (for debugging)."""


class MemoryBackendSpec(Model):
    """Configuration of the memory state backend, whose checkpoints the driver holds."""

    max_state_size: Annotated[ByteSize, between("1Ki", "32Mi")] = Field(default=5 << 20, json_schema_extra=UPGRADE)
    """Maximum size of one state of one step in one slot, in a checkpoint (1Ki to 32Mi). A checkpoint with more fails."""

    max_checkpoint_size: Annotated[ByteSize, between("1Ki", "32Mi")] = Field(default=10 << 20, json_schema_extra=UPGRADE)
    """Maximum size of all states of all slots, in a checkpoint (1Ki to 32Mi). A checkpoint with more fails."""

    async_snapshots: Flag = Field(default=True, json_schema_extra=UPGRADE)
    """True to write snapshots while batches go on. If false, batches wait until the snapshot of their slot is written (for debugging)."""

    def conflicts(self) -> Iterator[Problem]:
        """A state fits a checkpoint."""
        if self.max_state_size > self.max_checkpoint_size:
            yield Problem("maxStateSize", "is more than maxCheckpointSize", "Lower it")


class RocksDBMemorySpec(Model):
    """Split of a slot's native memory. The split allows for write buffers to exceed their share by half."""

    cel_rules = (
        CelRule(
            "2.0 * self.writeBufferRatio / (3.0 - self.writeBufferRatio) + self.highPrioPoolRatio < 1.0",
            "highPrioPoolRatio: write buffers, 2r / (3 - r) of the cache with r = writeBufferRatio, and the high-priority pool leave no room for"
            " data blocks. Keep their sum below 1",
        ),
    )

    managed: Flag = Field(default=True, json_schema_extra=UPGRADE)
    """True to keep all RocksDB instances of a slot within its managed memory. If false, each instance uses what its own options allow."""

    fixed_per_slot: Annotated[ByteSize, between("1Mi")] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Memory budget of each slot (1Mi to 1Ti), used instead of its managed memory. Takes precedence over managed."""

    write_buffer_ratio: Annotated[Number, Field(gt=0, lt=1)] = Field(default=0.5, json_schema_extra=UPGRADE)
    """Fraction of the budget for write buffers (between 0 and 1)."""

    high_prio_pool_ratio: Annotated[Number, Field(ge=0, lt=1)] = Field(default=0.1, json_schema_extra=UPGRADE)
    """Fraction of the cache reserved for index and filter blocks (from 0 to less than 1)."""

    def conflicts(self) -> Iterator[Problem]:
        """Write buffers and the high-priority pool together fit into the cache."""
        problem = pool_problem(exact(self.write_buffer_ratio), exact(self.high_prio_pool_ratio))
        if problem is not None:
            yield Problem("highPrioPoolRatio", problem, POOL_REMEDY)


class RocksDBSpec(Model):
    """RocksDB configuration. optionsFactory takes precedence over options, and options over predefinedOptions; see docs/rocksdb.md."""

    cel_rules = (
        CelRule(
            f"!has(self.options) || self.options.all(name, name in {sorted((*OPTIONS, BLOCK_BASED))})",
            "options: contains a name that is not one of Flink's RocksDB options (without the prefix state.backend.rocksdb.). Correct or remove it",
        ),
    )

    memory: RocksDBMemorySpec = Field(default=RocksDBMemorySpec(), json_schema_extra=UPGRADE)
    """Split of a slot's native memory."""

    predefined_options: PredefinedOptions = Field(default=PredefinedOptions.DEFAULT, json_schema_extra=UPGRADE)
    """Predefined set of options: DEFAULT, SPINNING_DISK_OPTIMIZED, SPINNING_DISK_OPTIMIZED_HIGH_MEM or FLASH_SSD_OPTIMIZED."""

    options_factory: (
        Annotated[str, StringConstraints(max_length=512, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"), Expected("module:Class")] | None
    ) = Field(default=None, json_schema_extra=UPGRADE)
    """Python class derived from RocksDBOptionsFactory (module:Class), or a function that takes a RocksDBSettings and returns one. The driver
    calls it first, then each slot."""

    options: Annotated[dict[Annotated[str, AfterValidator(_known_option)], ScalarText], Field(max_length=len(OPTIONS) + 1)] = Field(
        default_factory=dict, json_schema_extra=UPGRADE
    )
    """Individual options by Flink's names, without the prefix state.backend.rocksdb., for example compaction.style."""

    metrics: Annotated[
        tuple[Annotated[str, AfterValidator(_known_metric), WithJsonSchema({"type": "string", "enum": sorted(METRICS)})], ...],
        Field(max_length=len(METRICS)),
    ] = Field(default=(), json_schema_extra=UPGRADE)
    """Native RocksDB metrics to export, by Flink's names, for example block-cache-usage. Defaults to none."""

    timer_service: TimerServiceType = Field(default=TimerServiceType.ROCKSDB, json_schema_extra=UPGRADE)
    """Where timers are kept: rocksdb, or heap for the Python heap, where each takes about 130 bytes of pythonPerSlot, plus its key."""

    local_dir: Text | None = Field(default=None, json_schema_extra=UPGRADE)
    """Directory for RocksDB's files on each node. Defaults to the executor's scratch space."""

    def conflicts(self) -> Iterator[Problem]:
        """Each option has a value that can take effect, and together with the predefined ones they make sense."""
        wrong = False
        for name, text in self.options.items():
            try:
                read_option(name, text)
            except InvalidInputError as error:
                wrong = True
                yield Problem(f"options.{name}", error.message, error.remedy or "See docs/rocksdb.md")
        if wrong:
            return
        try:
            choose(self.predefined_options, self.options)
        except InvalidInputError as error:
            yield Problem("options", f"{error.field}: {error.message}", error.remedy or "See docs/rocksdb.md")


class StateBackendSpec(Model):
    """State backend configuration."""

    cel_rules = (
        CelRule(
            f"!has(self.options) || self.options.all(name, name.contains('.') && !name.startsWith('{_FLINK_PREFIX}'))",
            "options: contains a name without a dot, or one that begins with state. Choose a name such as my.block-size",
        ),
        CelRule(
            "!has(self.options) || size(self.options) == 0 || has(self.rocksdb.optionsFactory) || (has(self.type) && self.type.contains(':'))",
            "options: has no effect without a class that reads it. Set type or rocksdb.optionsFactory to one, or remove it",
        ),
    )

    type: BackendName = Field(default=StateBackendType.ROCKSDB.value, json_schema_extra=no_server_default(UPGRADE))
    """State backend: memory and filesystem keep state on the Python heap; rocksdb keeps it on local disk and uses managed memory; module:Class is a
    StateBackend of your own. Defaults to
    the type that the job has run with, or for a new job to the installation's default, or to rocksdb."""

    memory: MemoryBackendSpec = Field(default=MemoryBackendSpec(), json_schema_extra=UPGRADE)
    """Configuration of type memory (only for this type)."""

    filesystem: FilesystemBackendSpec = Field(default=FilesystemBackendSpec(), json_schema_extra=UPGRADE)
    """Configuration of type filesystem (only for this type)."""

    rocksdb: RocksDBSpec = Field(default=RocksDBSpec(), json_schema_extra=UPGRADE)
    """RocksDB configuration (only for type rocksdb)."""

    local_recovery: Flag = Field(default=True, json_schema_extra=UPGRADE)
    """True to restore from files that a killed slot has left on the node, as far as they equal the checkpoint's (Flink's
    execution.state-recovery.from-local). Other files are downloaded."""

    options: Annotated[dict[Annotated[str, AfterValidator(_own_option)], ScalarText], Field(max_length=256)] = Field(
        default_factory=dict, json_schema_extra=UPGRADE
    )
    """Settings of your own classes (a StateBackend or a ConfigurableRocksDBOptionsFactory), by names with a dot that do not begin with state. (at most 256)."""

    @property
    def bounded(self) -> bool:
        """Whether RocksDB shares a budget: fixedPerSlot, else managed memory."""
        memory = self.rocksdb.memory
        return self.type == StateBackendType.ROCKSDB and (memory.managed or memory.fixed_per_slot is not None)

    def warnings(self) -> Iterator[str]:
        """Yield what works on Kubernetes, but is not meant for it."""
        if self.type == StateBackendType.MEMORY:
            yield "spec.stateBackend.type memory: every checkpoint is held by the driver. Use it for tests"

    def conflicts(self) -> Iterator[Problem]:
        """Tuning needs something to tune."""
        unused = [
            name
            for name, given, default in (
                ("memory", self.memory, MemoryBackendSpec()),
                ("filesystem", self.filesystem, FilesystemBackendSpec()),
                ("rocksdb", self.rocksdb, RocksDBSpec()),
            )
            if name != self.type and given != default
        ]
        for name in unused:
            yield Problem(name, f"has no effect with type {self.type}", f"Remove it or set type: {name}")
        if not unused and self.options and self.rocksdb.options_factory is None and self.type in BACKENDS:
            yield Problem(
                "options", "has no effect without a class that reads it", "Set type or rocksdb.optionsFactory to one, or remove it"
            )
