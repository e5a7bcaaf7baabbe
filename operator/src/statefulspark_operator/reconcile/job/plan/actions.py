"""The actions of a plan. Every action is idempotent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.savepoints import SavepointFormat
from statefulspark_operator.api.jobs import SnapshotInfo, StatefulSparkJobStatus
from statefulspark_operator.api.snapshots import SnapshotTrigger, SnapshotType


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFinalizer:
    """Add the operator's finalizer, so that the object is kept until its state is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFinalizer:
    """Remove the operator's finalizer, so that the object can be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyChildren:
    """Apply Service, ConfigMap, Secrets, service account, role, disruption budget and network policy for ``spec``."""

    spec: StatefulSparkJobSpec
    parallelism: int
    repair: bool = False
    """The children should exist already; an event is recorded if any had to be repaired."""
    changed_only: bool = False
    """Skip children that are unchanged since the last apply. Not used before a driver start, because a deletion may have been missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDriver:
    """Create the driver pod. Does nothing if one exists, of whatever spec."""

    spec: StatefulSparkJobSpec
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteDriver:
    """Delete the driver pod. Its executors are garbage-collected with it."""

    uid: str
    """UID precondition: a newer pod of the same name is kept."""
    grace_s: int
    """Grace period for the last checkpoint, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteExecutor:
    """Delete an executor pod that has ended."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskDriver:
    """Request an operation from the driver. A repeated request with the same key returns the first operation."""

    kind: Literal["stop", "cancel", "rescale", "checkpoint"]
    key: str
    savepoint: bool = False
    retain: bool = False
    """True to keep the state of a job that is canceled, whatever ``retention.onCancellation`` says."""
    parallelism: int | None = None
    timeout_s: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSecrets:
    """Create the job's Secrets if they are missing, and renew its certificate before it expires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot:
    """Create a StateSnapshot object. Does nothing if one of that name exists."""

    name: str
    trigger: SnapshotTrigger
    """Trigger of the snapshot."""
    type: SnapshotType = SnapshotType.SAVEPOINT
    existing_path: str | None = None
    """Location of a snapshot that exists in storage already."""
    known: SnapshotInfo | None = None
    """Its metadata if known; otherwise a storage pod reads them."""
    max_parallelism: int | None = None
    """Its number of key groups, if known."""
    dispose: bool = False
    """If True, deleting the object deletes the savepoint from storage."""
    format: SavepointFormat = "native"
    """Of a new savepoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSnapshot:
    """Delete a StateSnapshot object."""

    name: str


Action = (
    AddFinalizer
    | RemoveFinalizer
    | ApplyChildren
    | CreateDriver
    | DeleteDriver
    | DeleteExecutor
    | AskDriver
    | CheckSecrets
    | TakeSnapshot
    | DeleteSnapshot
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A Kubernetes event."""

    reason: str
    """Machine-readable reason in CamelCase; docs/operations.md lists them."""
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Next actions. The status is written first, so that a transition survives a restart of the operator."""

    status: StatefulSparkJobStatus
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after_s: float | None = None
    """Seconds until the next reconciliation if no event arrives earlier; None for the resync interval."""
