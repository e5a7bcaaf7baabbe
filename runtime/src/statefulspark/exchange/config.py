"""Configuration that the driver passes to slots and exchange tasks: plain picklable data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from statefulspark.exchange.endpoint import Endpoint
from statefulspark.exchange.rocksdb_choice import RocksDBChoice
from statefulspark.logs.levels import LogLevels
from statefulspark.memory.split import HIGH_PRIO_POOL_RATIO, WRITE_BUFFER_RATIO
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.storage_settings import StorageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLogs:
    """Level and destination of the slots' log records."""

    levels: LogLevels = field(default_factory=LogLevels)
    socket: str | None = None
    """Path of the driver's socket for records. If it is None or absent, as on other machines, records are JSON lines on standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotConfig:
    """Everything a slot process needs before it talks to the coordinator."""

    coordinator: Endpoint
    job_name: str
    parallelism: int
    max_parallelism: int
    steps: bytes
    """cloudpickle of ``list[StepSpec]``."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Global job parameters."""
    python_path: tuple[str, ...]
    """Folders and archives with modules of the job, where they exist on the slot's machine."""
    store: ObjectStore
    """Durable storage, rooted at the job's folder."""
    storage: StorageSettings
    """Settings to reach other places in storage (savepoints)."""
    logs: SlotLogs = field(default_factory=SlotLogs)
    """Settings of the slot's log."""
    backend: str
    """memory | filesystem | rocksdb, or a class of the job's own as ``module:Class``."""
    backend_class: bytes | None = None
    """cloudpickle of that class: the job's own modules need not be importable on the slot's machine. None imports it by its name."""
    backend_options: Mapping[str, str] = field(default_factory=dict)
    """Settings of that class."""
    inline_max_bytes: int | None = None
    """Most bytes of entries that the slot sends for ``_metadata`` of a checkpoint; None uploads files."""
    managed_bytes: int = 128 << 20
    """Managed memory of the slot."""
    managed: bool = True
    """True if caches and write buffers of RocksDB stay within the managed memory."""
    fixed_per_slot: int | None = None
    """Bytes that they stay within instead; wins over ``managed``."""
    write_buffer_ratio: float = WRITE_BUFFER_RATIO
    """Share of the budget for write buffers."""
    high_prio_pool_ratio: float = HIGH_PRIO_POOL_RATIO
    """Share of the cache for index and filter blocks."""
    native_metrics: tuple[str, ...] = ()
    """Flink's names of RocksDB's own figures to report."""
    rocksdb: RocksDBChoice = field(default_factory=RocksDBChoice)
    """Options of RocksDB."""
    heap_timers: bool = False
    """True if timers are kept on the Python heap beside state in RocksDB."""
    async_snapshots: bool = True
    """True if batches go on while a snapshot of heap state is written."""
    local_dir: str | None = None
    """Folder for working files; the system's temporary folder when None."""
    local_recovery: bool = True
    """True if files that dead slots left on the machine are linked instead of downloaded."""
    restore_threads: int = 8
    """Files that are downloaded at once when the slot restores."""
    host: str | None = None
    """Address to listen on besides a Unix socket, with the coordinator's certificates; ``auto`` takes the address by which this host reaches
    others (executor pods), None is for jobs on one machine."""
    cache_bytes: int = 64 << 20
    """Decoded objects kept in the slot."""
    dirty_bytes: int = 64 << 20
    """Changes of one batch kept in memory before they spill."""
    sort_bytes: int = 64 << 20
    """Rows of one batch sorted in memory before they spill."""
    heartbeat_s: float = 1.0
    """Pause between two heartbeats."""
    orphan_s: float = 15.0
    """A slot that cannot reach its coordinator this long ends itself."""

    @property
    def budget_bytes(self) -> int | None:
        """Native memory that RocksDB shares in this slot: fixed_per_slot, else managed memory; None when neither bounds it."""
        if self.fixed_per_slot is not None:
            return self.fixed_per_slot
        return self.managed_bytes if self.managed else None

    def for_one_of(self, steps: int) -> SlotConfig:
        """Return the settings of one of ``steps`` keyed steps (at least 1): they may run at once, so each gets its share."""
        return replace(
            self,
            cache_bytes=self.cache_bytes // steps,
            dirty_bytes=max(1, self.dirty_bytes // steps),
            sort_bytes=max(1, self.sort_bytes // steps),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeConfig:
    """Everything an exchange task needs."""

    coordinator: Endpoint
    uid: str
    max_parallelism: int
    parallelism: int
    start_wait_s: float = 30.0
    """Seconds to wait for a slot that nobody has started; then the task fails and leaves its core to the slot."""
    restore_wait_s: float = 1800.0
    """Seconds to wait for a slot that is restoring its state."""
