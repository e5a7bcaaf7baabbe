"""What a job's driver says of itself, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from statefulspark_operator.api.jobs import SnapshotInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why something failed."""

    reason: str
    """One CamelCase word."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Something that the driver was asked for."""

    id: str
    state: Literal["RUNNING", "SUCCEEDED", "FAILED"]
    snapshot: SnapshotInfo | None = None
    error: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One slot as its driver sees it."""

    slot: int
    first: int
    last: int
    state: str
    executor: str | None
    host: str | None = None
    """Name of the executor's pod."""
    oom_kills: int = 0
    """Processes of its container that the kernel has ended for lack of memory."""
    limit_bytes: int | None = None
    """Limit of its container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the driver's API says."""

    state: str
    """The runtime's ``JobState``."""
    attempt: int
    batch: int
    parallelism: int
    max_parallelism: int
    slots: tuple[Slot, ...] = ()
    last_checkpoint: SnapshotInfo | None = None
    last_savepoint: SnapshotInfo | None = None
    restored_from: str | None = None
    failed_checkpoints: int = 0
    restarts: int = 0
    """Times its query was started again after a failure."""
    error: Failure | None = None
    operations: Mapping[str, Operation] = field(default_factory=dict)
    """What it was asked for and remembers, by idempotency key."""
    retained: tuple[SnapshotInfo, ...] | None = None
    """The checkpoints that it keeps in the job's folder; None when it was not asked."""

    @property
    def runs(self) -> bool:
        """Whether batches can run: the driver says RUNNING as soon as its query is started, while executors may still be missing."""
        return self.state == "RUNNING" and len(self.slots) == self.parallelism and all(slot.state == "RUNNING" for slot in self.slots)
