"""State of a job's driver as its API reports it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from statefulspark_operator.api.jobs import LagInfo, SnapshotInfo

_FAILS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Reason of a failure."""

    reason: str
    """One CamelCase word."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation requested from the driver."""

    id: str
    state: Literal["RUNNING", "SUCCEEDED", "FAILED"]
    snapshot: SnapshotInfo | None = None
    error: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A slot as reported by its driver."""

    slot: int
    first: int
    last: int
    state: str
    executor: str | None
    host: str | None = None
    """Name of the executor's pod."""
    oom_kills: int = 0
    """Number of OOM-killed processes of its container."""
    limit_bytes: int | None = None
    """Memory limit of its container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """A rescale that the driver has carried out."""

    from_parallelism: int
    to_parallelism: int
    fetch_bytes: int
    """Of the files that the new slots needed."""
    pause_ms: int | None
    """Time without a committed batch; None if the driver could not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """State of the driver as reported by its API."""

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
    """Number of query restarts after failures."""
    committed_batches: int | None = None
    """Batches that this driver has committed; None if its version does not report them."""
    lag: LagInfo | None = None
    """Over all sources; None before the first batch, and if its version does not report it."""
    idle: bool = False
    """True if the query waits for new rows."""
    failures: int = 0
    """Consecutive failures since the last committed batch."""
    failing: Failure | None = None
    """The last of them."""
    error: Failure | None = None
    operations: Mapping[str, Operation] = field(default_factory=dict)
    """Requested operations by idempotency key."""
    last_rescale: Rescale | None = None
    retained: tuple[SnapshotInfo, ...] | None = None
    """Retained checkpoints; None if they were not requested."""

    @property
    def runs(self) -> bool:
        """True if batches can run. The driver reports RUNNING as soon as its query is started, even if executors are still missing."""
        return self.state == "RUNNING" and len(self.slots) == self.parallelism and all(slot.state == "RUNNING" for slot in self.slots)

    @property
    def fails(self) -> bool:
        """True if batches fail repeatedly. A single failure may be caused by a machine."""
        return self.failing is not None and self.failures >= _FAILS

    @property
    def works(self) -> bool:
        """True if this driver has committed a batch or waits for rows, and its batches do not fail."""
        return not self.fails and (self.committed_batches is None or self.committed_batches > 0 or self.idle)
