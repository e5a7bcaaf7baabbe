"""The report in each heartbeat of a slot, and the heartbeat itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from statefulspark.checkpoint.write.progress import UploadedBytes
from statefulspark.memory.tuning import MemoryTuning
from statefulspark.process.api.metrics import UserMetric
from statefulspark.process.rows.key_group_rows import RowSpread
from statefulspark.rpc.codec import Message, Request
from statefulspark.state.store.state_sizes import StateSize


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerMemory:
    """The memory of the slot's container, as the kernel counts it."""

    limit_bytes: int
    peak_bytes: int | None
    """The most that the container has used at once; None if the kernel does not keep it."""
    oom_kills: int | None
    """Processes of the container that the kernel has ended for lack of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeMemory:
    """The memory that RocksDB shares between the stores of a slot, in bytes."""

    tuning: MemoryTuning | None
    """The split that the slot has; None if its native memory is not managed."""
    cache_bytes: int | None
    """Capacity of the block cache."""
    cache_used_bytes: int
    """Cached blocks, indexes, filters and write buffers."""
    write_buffer_bytes: int | None
    """Limit of all write buffers; None, like the next one, without a write buffer manager."""
    write_buffer_used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeMetric:
    """One of RocksDB's own metrics."""

    name: str
    """Flink's name of it."""
    level: str | None
    """The level of the LSM tree, for metrics that have one value per level."""
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """A slot's report about a keyed step."""

    caches: dict[str, tuple[int, int]]
    """Hits and misses of the cache of decoded objects, per state that was read."""
    key_groups: RowSpread
    user: dict[str, UserMetric]
    """Metrics that the function has registered, by name."""
    expired: dict[str, int] = field(default_factory=dict)
    """Expired entries that the cleanup has deleted, per state with time to live."""
    cleanup_seconds: float = 0.0
    """Time that this took."""
    cleanup_lag: float = 0.0
    """Lag of the cleanup, in units of two fifths of the time to live."""
    cleanup_due_ms: int | None = None
    """Processing time by which it needs a batch even if there are no rows; None if nothing that is stored will expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReport:
    """A slot's measurements of itself."""

    restore_ms: int
    """Milliseconds that the slot took to restore its state."""
    rss_bytes: int
    """Resident memory of the process."""
    pss_bytes: int
    """Proportional set size: shared pages count by their share."""
    baseline_bytes: int
    """Resident memory before the store was opened."""
    state_bytes: int
    """Live bytes of the store."""
    coverage: float
    """Fraction of the store that the sizes are estimated from, 0 to 1."""
    states: dict[int, StateSize]
    """Estimated sizes by state id."""
    steps: dict[str, StepReport]
    """By uid."""
    container: ContainerMemory | None = None
    """None if nothing limits the container."""
    memory: NativeMemory | None = None
    """None if the state is not in RocksDB."""
    native: tuple[NativeMetric, ...] = ()
    """RocksDB's own metrics that the manifest enables."""
    uploading: UploadedBytes | None = None
    """Progress of a snapshot's upload; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer(Message):
    """The driver's answer to a heartbeat: its current requests to the slot."""

    stop: bool
    keep_files: bool = False
    """As that of `Stop`."""
    memory: MemoryTuning | None
    """None: the slot's native memory is not managed."""
    processing_time_ms: int | None
    """Of the job's last committed batch; None before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Request[HeartbeatAnswer]):
    """The slot lives."""

    slot: int
    epoch: int
    report: SlotReport
    logs: tuple[str, ...] = ()
    """Records that the slot could not give to a driver on its machine: JSON lines, see `ForwardedRecords`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring(Request[None]):
    """The slot fetches the state that it restores. Heartbeats begin when it serves."""

    slot: int
    epoch: int
    downloaded_bytes: int
    """Of complete and verified files."""
    local_bytes: int = 0
    """Of files that were still on the machine."""
    total_bytes: int
    """Of all files that it needs."""
