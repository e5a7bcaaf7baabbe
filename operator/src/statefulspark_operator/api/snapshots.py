"""Status of a ``StateSnapshot``."""

from __future__ import annotations

from enum import StrEnum

from statefulspark_operator.api.base import Count, Message, ShortText, StatusModel, Timestamp, Url


class SnapshotState(StrEnum):
    """How far a snapshot is. COMPLETED, FAILED and ABANDONED are final."""

    TRIGGER_PENDING = "TRIGGER_PENDING"
    """Not asked for yet, or to be asked for again after a failure."""
    IN_PROGRESS = "IN_PROGRESS"
    """The driver is taking it."""
    COMPLETED = "COMPLETED"
    """It is in storage under status.path."""
    FAILED = "FAILED"
    """It failed as often as spec.backoffLimit allows."""
    ABANDONED = "ABANDONED"
    """The job ended or went away before it was taken."""


class SnapshotType(StrEnum):
    """Kind of snapshot; the value of the label ``snapshot-type``."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


class SnapshotTrigger(StrEnum):
    """Who asked for a snapshot; the value of the label ``trigger-type``. Those of upgrade and schedule are pruned by savepoints.history."""

    MANUAL = "manual"
    """A person: the object, or spec.savepointNonce."""
    SCHEDULED = "scheduled"
    """spec.savepoints.schedule."""
    UPGRADE = "upgrade"
    """The operator, before an upgrade, suspension or deletion."""
    JOB = "job"
    """The job's own checkpointing."""


class StateSnapshotStatus(StatusModel):
    """What has become of a snapshot."""

    state: SnapshotState = SnapshotState.TRIGGER_PENDING
    """TRIGGER_PENDING, IN_PROGRESS, COMPLETED, FAILED or ABANDONED."""

    observed_generation: Count | None = None
    """Generation of the spec that was acted on last."""

    trigger_id: ShortText | None = None
    """The driver's number of the operation."""

    trigger_timestamp: Timestamp | None = None
    """When the driver was asked."""

    result_timestamp: Timestamp | None = None
    """When it was completed, or failed last."""

    path: Url | None = None
    """Where it is in storage; what initialSavepointPath takes."""

    size_bytes: Count | None = None
    """All files it refers to."""

    checkpoint_id: Count | None = None
    """Number within the job."""

    batch: int | None = None
    """The state is that after this batch."""

    max_parallelism: Count | None = None
    """Key groups of the state; a job that starts from it has as many."""

    error: Message | None = None
    """Why it failed last."""

    failures: Count = 0
    """Failed attempts."""
