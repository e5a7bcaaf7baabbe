"""Status of a ``StatefulSparkJob``: its lifecycle, conditions, and the progress of the operator's transitions."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from statefulspark_operator.api.base import Count, Message, Reason, ShortText, StatusModel, Timestamp, Url
from statefulspark_operator.api.conditions import Condition
from statefulspark_operator.api.memory import MemoryPlan

HISTORY_MAX = 20
"""Maximum number of entries in the lifecycle history."""
SLOTS_MAX = 512
"""Maximum number of slots whose key groups are listed; the others follow from slot = key group * parallelism / maxParallelism."""
MEMORY_KILLS_MAX = 16
"""Maximum number of executor pods listed with OOM-killed processes."""
SPEC_CHARACTERS_MAX = 262_144
PROGRESS_EVERY: Final = timedelta(seconds=30)
"""Interval at which ``batch``, ``lag`` and ``lastCheckpoint`` are written if nothing else in the status changes."""

ObservedParallelism = Annotated[int, Field(ge=0, le=32768)]
SpecText = Annotated[str, Field(max_length=SPEC_CHARACTERS_MAX)]


class LifecycleState(StrEnum):
    """Lifecycle state of the job as the operator sees it. Suspended, stable, rolled back, failed and finished jobs stay so until something changes."""

    CREATED = "CREATED"
    """The operator has seen the job; nothing is started."""
    DEPLOYING = "DEPLOYING"
    """The driver is starting and restoring state."""
    RUNNING = "RUNNING"
    """Batches are processed; no checkpoint has completed with this spec yet."""
    STABLE = "STABLE"
    """Running with this spec, with a completed checkpoint. A rollback returns to the last stable spec."""
    UPGRADING = "UPGRADING"
    """Stopping with a savepoint or checkpoint, then starting with a new spec."""
    RESCALING = "RESCALING"
    """Changing the parallelism."""
    SUSPENDING = "SUSPENDING"
    """Stopping with a savepoint or checkpoint."""
    SUSPENDED = "SUSPENDED"
    """Suspended by its spec; its state is kept."""
    RECOVERING = "RECOVERING"
    """The driver was lost and is restarting from the latest state in storage."""
    ROLLING_BACK = "ROLLING_BACK"
    """The upgrade failed; the operator is starting the last stable spec."""
    ROLLED_BACK = "ROLLED_BACK"
    """Running the last stable spec instead of the current one."""
    FAILED = "FAILED"
    """Failed with an error that a restart does not fix."""
    FINISHED = "FINISHED"
    """Finished: all sources are exhausted."""
    DELETING = "DELETING"
    """Being deleted."""


class JobStateName(StrEnum):
    """State of the job as reported by its driver; the runtime's ``JobState``."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESCALING = "RESCALING"
    SUSPENDED = "SUSPENDED"
    FAILED = "FAILED"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"


class ReconciliationState(StrEnum):
    """State of the last reconciled spec."""

    DEPLOYED = "DEPLOYED"
    UPGRADING = "UPGRADING"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"


class TransitionKind(StrEnum):
    """Kind of a transition."""

    DEPLOY = "deploy"
    UPGRADE = "upgrade"
    RESCALE = "rescale"
    SUSPEND = "suspend"
    RECOVER = "recover"
    ROLLBACK = "rollback"
    DELETE = "delete"


class LifecycleChange(StatusModel):
    """A change of the lifecycle state."""

    state: LifecycleState
    """New lifecycle state."""

    since: Timestamp
    """Time of the change."""

    reason: Reason
    """Machine-readable reason in CamelCase."""

    message: Message | None = None
    """Human-readable message."""


class SlotKeyGroups(StatusModel):
    """Key groups of one slot."""

    slot: Annotated[int, Field(ge=0, le=32767)]
    """Slot number."""

    first: Annotated[int, Field(ge=0, le=32767)]
    """First key group, inclusive."""

    last: Annotated[int, Field(ge=0, le=32767)]
    """Last key group, inclusive."""

    executor: ShortText | None = None
    """Spark's ID of the executor that the slot runs in."""


class KeyGroupMove(StatusModel):
    """A range of key groups that moves from one slot to another."""

    first: Annotated[int, Field(ge=0, le=32767)]
    """First key group, inclusive."""

    last: Annotated[int, Field(ge=0, le=32767)]
    """Last key group, inclusive."""

    from_slot: Annotated[int, Field(ge=0, le=32767)]
    """Slot that owns them before the rescale."""

    to_slot: Annotated[int, Field(ge=0, le=32767)]
    """Slot that owns them after the rescale."""


class SnapshotInfo(StatusModel):
    """A completed checkpoint or savepoint."""

    id: Count
    """Checkpoint ID within the job."""

    path: Url
    """Location in storage. Can be used as initialSavepointPath."""

    completed_at: Timestamp
    """Completion time."""

    size_bytes: Count | None = None
    """Total size of all files that it refers to, in bytes."""

    uploaded_bytes: Count | None = None
    """Bytes newly uploaded for this checkpoint."""

    duration_ms: Count | None = None
    """Time from the trigger to the published metadata, in milliseconds."""

    batch: int | None = None
    """Last batch whose changes are included."""


class LagInfo(StatusModel):
    """Rows, files and bytes that the sources had and the last batch did not read. Absent if no source reports them."""

    rows: Count | None = None
    """Rows, or Kafka records."""

    files: Count | None = None
    """Files."""

    size_bytes: Count | None = None
    """Size of unread files in bytes."""

    unknown_sources: Count = 0
    """Number of sources that report nothing and are not included."""

    at: Timestamp | None = None
    """Time at which Spark planned the last batch."""


class MemoryKill(StatusModel):
    """An executor pod with OOM-killed processes."""

    pod: ShortText
    """Name of the executor's pod."""

    kills: Count
    """Number of OOM-killed processes: slots, or the executor itself."""

    at: Timestamp
    """Time when the last kill was observed."""


class ErrorInfo(StatusModel):
    """The error that keeps the job from reaching the desired state."""

    reason: Reason
    """Machine-readable reason in CamelCase."""

    message: Message
    """Human-readable message with the field or object and the remedy."""

    since: Timestamp
    """Time of the first occurrence."""

    count: Annotated[int, Field(ge=1, le=2_147_483_647)] = 1
    """Number of occurrences."""


class Transition(StatusModel):
    """The transition in progress. It is written before its step is executed, so that any replica can continue it."""

    kind: TransitionKind
    """deploy, upgrade, rescale, suspend, recover, rollback or delete."""

    step: ShortText
    """Current step."""

    since: Timestamp
    """Start time of the transition."""

    deadline: Timestamp | None = None
    """Time at which the transition times out."""

    generation: Count
    """Target generation of the spec."""

    from_parallelism: ObservedParallelism | None = None
    """Number of slots before the rescale."""

    to_parallelism: ObservedParallelism | None = None
    """Number of slots after the rescale."""

    moved_key_groups: Annotated[int, Field(ge=0, le=32768)] | None = None
    """Number of key groups that move to another slot. A rescale in place does not reload the state of the others."""

    moves: Annotated[tuple[KeyGroupMove, ...], Field(max_length=SLOTS_MAX)] = ()
    """Key groups that move, as at most the first 512 ranges."""

    trigger_id: ShortText | None = None
    """The driver's ID of the requested operation."""

    state_path: Url | None = None
    """Checkpoint or savepoint that the next start restores from."""

    attempts: Annotated[int, Field(ge=0, le=2_147_483_647)] = 0
    """Number of attempts at the current step."""


class ReconciliationStatus(StatusModel):
    """The reconciled specs as JSON text, without defaults of later versions."""

    state: ReconciliationState
    """DEPLOYED, UPGRADING, ROLLING_BACK or ROLLED_BACK."""

    reconciled_at: Timestamp | None = None
    """Time when the operator started to reconcile the last reconciled spec."""

    last_reconciled_generation: Count | None = None
    """Generation of the last reconciled spec."""

    last_reconciled_spec: SpecText | None = None
    """Spec that the running driver was created from."""

    stable_by: Timestamp | None = None
    """Deadline for the first completed checkpoint of the last reconciled spec; after it the operator rolls back. Absent until the spec runs."""

    began_batch: int | None = None
    """Last committed batch when the last reconciled spec started to run."""

    last_stable_generation: Count | None = None
    """Generation of the last stable spec."""

    last_stable_spec: SpecText | None = None
    """Last spec with which the job was STABLE. A failed upgrade rolls back to it."""

    last_stable_job_id: ShortText | None = None
    """The job's directory in storage at that time. A rollback restores its state from there."""


class StatefulSparkJobStatus(StatusModel):
    """Observed state of the job."""

    observed_generation: Count | None = None
    """Generation of the spec that was last reconciled."""

    lifecycle_state: LifecycleState | None = None
    """Lifecycle state of the job."""

    lifecycle_since: Timestamp | None = None
    """Time when the job entered this state."""

    lifecycle_history: Annotated[tuple[LifecycleChange, ...], Field(max_length=HISTORY_MAX)] = ()
    """Last lifecycle changes, newest first (at most 20)."""

    conditions: Annotated[
        tuple[Condition, ...],
        Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = ()
    """Valid, Ready, Running, Progressing, Degraded, Stalled and Reconciling."""

    job_id: ShortText | None = None
    """Name of the job's directory in storage. Initially the UID of the object."""

    initial_state: Url | None = None
    """Savepoint or checkpoint that the first start restored from, as initialSavepointPath or initialSnapshot was resolved then."""

    job_state: JobStateName | None = None
    """State of the job as reported by its driver."""

    attempt: Count | None = None
    """Number of driver starts so far."""

    epoch: Count | None = None
    """Fencing epoch: only the driver of this epoch may write."""

    driver_pod: ShortText | None = None
    """Name of the driver pod."""

    restarts: Count = 0
    """Number of times the operator restarted a lost driver since the job was last stable."""

    restarted_at: Timestamp | None = None
    """Time when the operator last restarted a lost driver."""

    parallelism: ObservedParallelism | None = None
    """Number of running slots."""

    desired_parallelism: ObservedParallelism | None = None
    """Desired number of slots."""

    max_parallelism: Annotated[int, Field(ge=1, le=32768)] | None = None
    """Number of key groups of the job's state. Cannot change."""

    label_selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the executor pods, for autoscalers."""

    executors: ObservedParallelism | None = None
    """Number of running executors."""

    key_groups: Annotated[tuple[SlotKeyGroups, ...], Field(max_length=SLOTS_MAX)] = ()
    """Key groups of the first 512 slots. The others follow from slot = key group * parallelism / maxParallelism."""

    progress_at: Timestamp | None = None
    """Time when batch, lag and lastCheckpoint were read from the driver. Updated with every other status change, and at least every
    30 s."""

    batch: int | None = None
    """Last committed batch."""

    last_checkpoint: SnapshotInfo | None = None
    """Latest checkpoint."""

    lag: LagInfo | None = None
    """Lag of the sources as of the last batch, in total. Absent before the first batch. The driver's status lists sources and partitions."""

    last_savepoint: SnapshotInfo | None = None
    """Latest savepoint."""

    restored_from: Url | None = None
    """Checkpoint or savepoint that the running attempt restored from. Absent if it started without state."""

    memory_plan: MemoryPlan | None = None
    """Memory breakdown of the pods."""

    memory_kills: Annotated[tuple[MemoryKill, ...], Field(max_length=MEMORY_KILLS_MAX)] = ()
    """Executor pods with OOM-killed processes, newest first (at most 16)."""

    transition: Transition | None = None
    """Transition in progress. Absent if there is none."""

    reconciliation: ReconciliationStatus | None = None
    """Reconciled specs."""

    error: ErrorInfo | None = None
    """Error that keeps the job from reaching the desired state. Absent if there is none."""
