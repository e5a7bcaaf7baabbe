"""SlotStatus and StepSkew: what a job's status says of its slots, and of how rows spread over them. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.coordinator.ongoing_work import SlotRestoring


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotMemory:
    """Memory of a slot's process at its last heartbeat, in bytes."""

    rss_bytes: int
    """Resident."""
    pss_bytes: int
    """Proportional set size: pages shared with other processes by their share."""
    baseline_bytes: int
    """Resident before the store was opened."""
    process_budget_bytes: int
    """Memory that the process is sized for, Python's and managed; pss_bytes should stay below it."""
    budget_bytes: int | None = None
    """Managed memory that the process is sized for; None when native memory is not managed."""
    managed_bytes: int | None = None
    """Managed memory that it may use now."""
    used_bytes: int | None = None
    """Cached blocks, indexes, filters and write buffers."""
    cache_bytes: int | None = None
    """Capacity of the block cache, read from RocksDB."""
    write_buffer_bytes: int | None = None
    """Limit of all write buffers."""
    write_buffer_used_bytes: int | None = None
    revision: int | None = None
    """Revision of the slot's split; see `MemoryStatus`."""
    container_limit_bytes: int | None = None
    """Limit of the container that it is in; None when nothing limits it."""
    container_peak_bytes: int | None = None
    """Most that the container has used at once, where the kernel keeps it."""
    container_oom_kills: int | None = None
    """Processes of the container that the kernel has ended for lack of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatus:
    """One slot: the owner of a contiguous range of key groups."""

    slot: int
    first: int
    """First key group, inclusive."""
    last: int
    """Last key group, inclusive."""
    state: str
    """``STARTING``, ``RESTORING``, ``RUNNING``, ``LOST``, or ``STOPPED`` once the job has ended."""
    epoch: int
    """Number of the slot's incarnation; an older one gets nothing accepted."""
    executor: str | None = None
    host: str | None = None
    pid: int | None = None
    restarts: int = 0
    rows_in: int = 0
    """Rows of all keyed steps in committed batches since this driver started, or the job was last rescaled in it."""
    store_bytes: int | None = None
    """Live bytes of the store; None before the first heartbeat, as are the next two."""
    cache_hit_ratio: float | None = None
    """Look-ups of state that the cache of decoded objects answered, since the slot started; 0 to 1."""
    memory: SlotMemory | None = None
    restoring: SlotRestoring | None = None
    """Set while ``state`` is RESTORING, from the slot's first report on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyKeyGroup:
    """One of the key groups with most rows."""

    key_group: int
    slot: int
    rows: int
    """In the slot's window of its last one to two million rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSpread:
    """Distribution of a keyed step's rows over the key groups of one slot."""

    slot: int
    rows_max: int
    """Of the slot's fullest key group, in its window of its last one to two million rows."""
    rows_mean: float
    """Mean over the slot's key groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkew:
    """Skew of a keyed step's rows over key groups."""

    ratio: float
    """Rows of the fullest key group by the mean; 1 is even."""
    top: tuple[BusyKeyGroup, ...]
    """The fullest key groups, the fullest first."""
    slots: tuple[SlotSpread, ...] = ()
    """Of the slots that had rows."""
