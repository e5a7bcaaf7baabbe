"""Status of a ``StateSnapshot``."""

from __future__ import annotations

from enum import StrEnum

from statefulspark_operator.api.base import Count, Message, ShortText, StatusModel, Timestamp, Url


class SnapshotState(StrEnum):
    """State of a snapshot. COMPLETED, FAILED and ABANDONED are final."""

    TRIGGER_PENDING = "TRIGGER_PENDING"
    """Not triggered yet, or waiting for a retry after a failure."""
    IN_PROGRESS = "IN_PROGRESS"
    """The driver is taking the snapshot."""
    COMPLETED = "COMPLETED"
    """The snapshot is stored at status.path."""
    FAILED = "FAILED"
    """All attempts that spec.backoffLimit allows have failed."""
    ABANDONED = "ABANDONED"
    """The job ended or was deleted before the snapshot was taken."""


class SnapshotType(StrEnum):
    """Kind of snapshot; the value of the label ``snapshot-type``."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


class SnapshotTrigger(StrEnum):
    """Trigger of a snapshot; the value of the label ``trigger-type``. Scheduled and upgrade snapshots are pruned according to savepoints.history."""

    MANUAL = "manual"
    """A user, by creating the object or by spec.savepointNonce."""
    SCHEDULED = "scheduled"
    """spec.savepoints.schedule."""
    UPGRADE = "upgrade"
    """The operator, before an upgrade, suspension or deletion."""
    JOB = "job"
    """The job's own checkpointing."""


class StateSnapshotStatus(StatusModel):
    """Observed state of a snapshot."""

    state: SnapshotState = SnapshotState.TRIGGER_PENDING
    """TRIGGER_PENDING, IN_PROGRESS, COMPLETED, FAILED or ABANDONED."""

    observed_generation: Count | None = None
    """Generation of the spec that was last reconciled."""

    trigger_id: ShortText | None = None
    """The driver's ID of the operation."""

    trigger_timestamp: Timestamp | None = None
    """Time when the snapshot was triggered."""

    result_timestamp: Timestamp | None = None
    """Time of completion, or of the last failure."""

    path: Url | None = None
    """Location in storage. Can be used as initialSavepointPath."""

    size_bytes: Count | None = None
    """Total size of all files that it refers to, in bytes."""

    checkpoint_id: Count | None = None
    """Checkpoint ID within the job."""

    batch: int | None = None
    """Last batch whose changes are included."""

    max_parallelism: Count | None = None
    """Number of key groups of the state. A job that restores from it has the same number."""

    error: Message | None = None
    """Error of the last failed attempt."""

    failures: Count = 0
    """Number of failed attempts."""
