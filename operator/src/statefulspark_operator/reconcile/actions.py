"""What a plan may ask for. Every action may be repeated: carrying it out twice is the same as once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from statefulspark_operator.api.jobs import SnapshotInfo, StatefulSparkJobStatus
from statefulspark_operator.api.snapshots import SnapshotTrigger, SnapshotType


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFinalizer:
    """Keep the object until its state is safe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFinalizer:
    """Let the object go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyChildren:
    """Make service, config map, secrets, account, role and disruption budget as ``spec`` wants them."""

    spec: dict[str, Any]
    parallelism: int
    repair: bool = False
    """They should be so already: an event tells if they were not."""
    changed_only: bool = False
    """Leave alone what was applied just so and not touched since. Not before a driver starts: that a child is gone may have been missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDriver:
    """Make the driver's pod; nothing happens when there is one, of whatever spec."""

    spec: dict[str, Any]
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteDriver:
    """Delete the driver's pod; its end takes the executors with it."""

    uid: str
    """Only this pod: a newer one of the same name stays."""
    grace_s: int
    """How long it has for its last checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskDriver:
    """Ask the driver for an operation; asking again with the same key finds the first one."""

    kind: Literal["stop", "cancel", "rescale", "checkpoint"]
    key: str
    savepoint: bool = False
    parallelism: int | None = None
    timeout_s: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot:
    """Make a StateSnapshot object; nothing happens when one of that name exists."""

    name: str
    trigger: SnapshotTrigger
    """Who asked for it."""
    type: SnapshotType = SnapshotType.SAVEPOINT
    existing_path: str | None = None
    """It is in storage already."""
    known: SnapshotInfo | None = None
    """What is there, when that is known; else storage is asked."""
    max_parallelism: int | None = None
    """Key groups of what is there, if known."""
    dispose: bool = False
    """Deleting the object deletes the savepoint from storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSnapshot:
    """Delete a StateSnapshot object."""

    name: str


Action = AddFinalizer | RemoveFinalizer | ApplyChildren | CreateDriver | DeleteDriver | AskDriver | TakeSnapshot | DeleteSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something for ``kubectl describe``."""

    reason: str
    """One CamelCase word; docs/operations.md lists them."""
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do next. The status is written first: what the operator has begun survives the operator."""

    status: StatefulSparkJobStatus
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    look_again_s: float | None = None
    """When to look again if nothing happens before; None: the usual interval."""
