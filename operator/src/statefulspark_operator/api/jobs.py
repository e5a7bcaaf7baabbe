"""Status of a ``StatefulSparkJob``: what it is doing, since when, and what the operator must remember to finish what it began."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from statefulspark_operator.api.base import Count, Message, Reason, ShortText, StatusModel, Timestamp, Url
from statefulspark_operator.api.conditions import Condition
from statefulspark_operator.api.memory import MemoryPlan

HISTORY_MAX = 20
"""Entries of the life cycle's history that are kept."""
SLOTS_MAX = 512
"""Slots whose key groups are listed; the rest follows from the formula slot = key group * parallelism / maxParallelism."""
MEMORY_KILLS_MAX = 16
"""Executor pods with processes ended for lack of memory that are remembered."""
SPEC_CHARACTERS_MAX = 262_144

ObservedParallelism = Annotated[int, Field(ge=0, le=32768)]
SpecText = Annotated[str, Field(max_length=SPEC_CHARACTERS_MAX)]


class LifecycleState(StrEnum):
    """Where the job is in its life, as the operator sees it. Suspended, stable, rolled back, failed and finished wait for a change."""

    CREATED = "CREATED"
    """Known, nothing started."""
    DEPLOYING = "DEPLOYING"
    """The driver is being started and restores state."""
    RUNNING = "RUNNING"
    """Batches run, but the spec has not proved itself yet."""
    STABLE = "STABLE"
    """Runs with this spec and has completed a checkpoint: what a rollback goes back to."""
    UPGRADING = "UPGRADING"
    """Being stopped with its state to start with a new spec."""
    RESCALING = "RESCALING"
    """Its parallelism is being changed."""
    SUSPENDING = "SUSPENDING"
    """Being stopped with its state."""
    SUSPENDED = "SUSPENDED"
    """Stopped as asked; its state is kept."""
    RECOVERING = "RECOVERING"
    """The driver was lost and is started again from the newest state in storage."""
    ROLLING_BACK = "ROLLING_BACK"
    """The upgrade failed; the last stable spec is being started."""
    ROLLED_BACK = "ROLLED_BACK"
    """Runs with the last stable spec, not with this one."""
    FAILED = "FAILED"
    """Ended with an error that restarting does not mend."""
    FINISHED = "FINISHED"
    """Ended by itself: the sources have nothing more."""
    DELETING = "DELETING"
    """Being removed."""


class JobStateName(StrEnum):
    """State of the job as its driver says it; the runtime's ``JobState``."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESCALING = "RESCALING"
    SUSPENDED = "SUSPENDED"
    FAILED = "FAILED"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"


class ReconciliationState(StrEnum):
    """What the last reconciled spec is doing."""

    DEPLOYED = "DEPLOYED"
    UPGRADING = "UPGRADING"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"


class TransitionKind(StrEnum):
    """What the operator is in the middle of."""

    DEPLOY = "deploy"
    UPGRADE = "upgrade"
    RESCALE = "rescale"
    SUSPEND = "suspend"
    RECOVER = "recover"
    ROLLBACK = "rollback"
    DELETE = "delete"


class LifecycleChange(StatusModel):
    """One change of the life cycle's state."""

    state: LifecycleState
    """The state entered."""

    since: Timestamp
    """When."""

    reason: Reason
    """One CamelCase word for programs."""

    message: Message | None = None
    """A sentence for people."""


class SlotKeyGroups(StatusModel):
    """The key groups of one slot."""

    slot: Annotated[int, Field(ge=0, le=32767)]
    """Number of the slot."""

    first: Annotated[int, Field(ge=0, le=32767)]
    """First key group, inclusive."""

    last: Annotated[int, Field(ge=0, le=32767)]
    """Last key group, inclusive."""

    executor: ShortText | None = None
    """Spark's id of the executor that it runs in."""


class KeyGroupMove(StatusModel):
    """Neighbouring key groups that go from one slot to another."""

    first: Annotated[int, Field(ge=0, le=32767)]
    """First key group, inclusive."""

    last: Annotated[int, Field(ge=0, le=32767)]
    """Last key group, inclusive."""

    from_slot: Annotated[int, Field(ge=0, le=32767)]
    """Slot that has them before."""

    to_slot: Annotated[int, Field(ge=0, le=32767)]
    """Slot that has them after."""


class SnapshotInfo(StatusModel):
    """A completed checkpoint or savepoint."""

    id: Count
    """Number within the job."""

    path: Url
    """Where it is in storage; what initialSavepointPath takes."""

    completed_at: Timestamp
    """When it was completed; its age is the time since."""

    size_bytes: Count | None = None
    """All files it refers to."""

    uploaded_bytes: Count | None = None
    """Bytes that no earlier one had uploaded."""

    duration_ms: Count | None = None
    """From the trigger to the published metadata, milliseconds."""

    batch: int | None = None
    """The state is that after this batch."""


class MemoryKill(StatusModel):
    """A pod of which the kernel has ended processes for lack of memory."""

    pod: ShortText
    """Name of the executor's pod."""

    kills: Count
    """How many processes: slots, or the executor itself."""

    at: Timestamp
    """When the last of them was noticed."""


class ErrorInfo(StatusModel):
    """Why the job is not as it should be."""

    reason: Reason
    """One CamelCase word for programs."""

    message: Message
    """Names the field or object and the remedy."""

    since: Timestamp
    """When it was seen first."""

    count: Annotated[int, Field(ge=1, le=2_147_483_647)] = 1
    """How often it was seen since."""


class Transition(StatusModel):
    """What the operator has begun and must finish or undo, whoever continues. Written before the step it names is taken."""

    kind: TransitionKind
    """deploy, upgrade, rescale, suspend, recover, rollback or delete."""

    step: ShortText
    """The step being taken; the plan knows the next."""

    since: Timestamp
    """When the transition began."""

    deadline: Timestamp | None = None
    """When it is given up."""

    generation: Count
    """Generation of the spec it leads to."""

    from_parallelism: ObservedParallelism | None = None
    """Slots before."""

    to_parallelism: ObservedParallelism | None = None
    """Slots after."""

    moved_key_groups: Annotated[int, Field(ge=0, le=32768)] | None = None
    """Key groups that change their slot; the others' state is read by nobody anew when the rescale is in place."""

    moves: Annotated[tuple[KeyGroupMove, ...], Field(max_length=SLOTS_MAX)] = ()
    """Which key groups go from where to where, at most the first 512 ranges."""

    trigger_id: ShortText | None = None
    """The driver's number of the operation that was asked for."""

    state_path: Url | None = None
    """The checkpoint or savepoint that the next start takes."""

    attempts: Annotated[int, Field(ge=0, le=2_147_483_647)] = 0
    """How often the step was tried."""


class ReconciliationStatus(StatusModel):
    """The specs that were acted on, as JSON text: what a person wrote, without defaults of a later version."""

    state: ReconciliationState
    """DEPLOYED, UPGRADING, ROLLING_BACK or ROLLED_BACK."""

    reconciled_at: Timestamp | None = None
    """When the last reconciled spec was taken up."""

    last_reconciled_generation: Count | None = None
    """Its generation."""

    last_reconciled_spec: SpecText | None = None
    """The spec that what runs was built from."""

    stable_by: Timestamp | None = None
    """When the last reconciled spec must have a complete checkpoint, or the last stable one comes back; not there before it runs."""

    began_batch: int | None = None
    """Last committed batch when the last reconciled spec began to run."""

    last_stable_generation: Count | None = None
    """Generation of the last stable spec."""

    last_stable_spec: SpecText | None = None
    """The last spec with which the job was STABLE; a failed upgrade goes back to it."""


class StatefulSparkJobStatus(StatusModel):
    """What the job is doing and since when."""

    observed_generation: Count | None = None
    """Generation of the spec that was looked at last."""

    lifecycle_state: LifecycleState | None = None
    """Where the job is in its life."""

    lifecycle_since: Timestamp | None = None
    """When it entered that state."""

    lifecycle_history: Annotated[tuple[LifecycleChange, ...], Field(max_length=HISTORY_MAX)] = ()
    """The last changes of the state, newest first, at most 20."""

    conditions: Annotated[
        tuple[Condition, ...],
        Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = ()
    """Valid, Ready, Running, Progressing, Degraded and Stalled."""

    job_id: ShortText | None = None
    """The job's folder in storage: the object's uid."""

    initial_state: Url | None = None
    """The savepoint or checkpoint that the job was started from first; what initialSavepointPath or initialSnapshot stood for then."""

    job_state: JobStateName | None = None
    """State of the job as its driver says it."""

    attempt: Count | None = None
    """Number of driver starts in the job's life."""

    epoch: Count | None = None
    """Number by which drivers are fenced: only the driver of this epoch may write."""

    driver_pod: ShortText | None = None
    """Name of the driver's pod."""

    restarts: Count = 0
    """Times the operator has started a lost driver again since the spec changed last."""

    restarted_at: Timestamp | None = None
    """When the operator started a lost driver again last."""

    parallelism: ObservedParallelism | None = None
    """Slots that run."""

    desired_parallelism: ObservedParallelism | None = None
    """Slots that the spec asks for."""

    max_parallelism: Annotated[int, Field(ge=1, le=32768)] | None = None
    """Key groups of the job's state; fixed."""

    label_selector: Annotated[str, Field(max_length=1024)] | None = None
    """Selects the executor pods; for autoscalers."""

    executors: ObservedParallelism | None = None
    """Executors that run."""

    key_groups: Annotated[tuple[SlotKeyGroups, ...], Field(max_length=SLOTS_MAX)] = ()
    """Key groups of the first 512 slots; the others follow from slot = key group * parallelism / maxParallelism."""

    progress_at: Timestamp | None = None
    """When batch and lastCheckpoint were read off the driver; they are written with any other change, else every 30 s."""

    batch: int | None = None
    """Last committed batch."""

    last_checkpoint: SnapshotInfo | None = None
    """The newest checkpoint."""

    last_savepoint: SnapshotInfo | None = None
    """The newest savepoint."""

    restored_from: Url | None = None
    """What the running attempt started from; not there when it started empty."""

    memory_plan: MemoryPlan | None = None
    """What the pods' memory is for."""

    memory_kills: Annotated[tuple[MemoryKill, ...], Field(max_length=MEMORY_KILLS_MAX)] = ()
    """Executor pods of which processes were ended for lack of memory, newest first, at most 16."""

    transition: Transition | None = None
    """What the operator is in the middle of; not there when nothing is under way."""

    reconciliation: ReconciliationStatus | None = None
    """The specs that were acted on."""

    error: ErrorInfo | None = None
    """Why the job is not as it should be; not there when it is."""
