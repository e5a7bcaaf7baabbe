"""What the operator sees when it looks at a job: plain data, gathered by ``observe`` and read by ``plan``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Driver, Failure
from statefulspark_operator.api.jobs import SnapshotInfo, StatefulSparkJobStatus
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a driver's container ended, from its termination message (docs/formats.md)."""

    state: str
    """``SUSPENDED``, ``FAILED``, ``FINISHED`` or ``CANCELED``."""
    batch: int
    path: str | None
    error: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """The driver's pod."""

    name: str
    uid: str
    generation: int
    """Generation of the job's spec that it was built from."""
    phase: str
    """Kubernetes' ``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``."""
    deleting: bool
    gone_by: datetime | None
    """When it is to have ended, if it is deleted: Kubernetes' deletionTimestamp, which counts the grace in."""
    ip: str | None
    restarts: int
    """How often the node has started its container again."""
    ending: Ending | None
    """Set when the container ended for good."""
    trouble: Failure | None
    """Why it does not start: image, scheduling, configuration, crash loop."""
    oom_killed: bool = False
    """Its container was ended for lack of memory."""

    @property
    def over(self) -> bool:
        """Nothing runs in it any more."""
        return self.phase in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """An executor that was ended for lack of memory."""

    pod: str
    uid: str
    limit_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSeen:
    """A StateSnapshot object of the job."""

    name: str
    trigger: SnapshotTrigger
    type: SnapshotType
    state: SnapshotState
    created_at: datetime
    path: str | None = None
    checkpoint_id: int | None = None
    max_parallelism: int | None = None
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at one job."""

    now: datetime
    name: str
    namespace: str
    uid: str
    generation: int
    deleting: bool
    has_finalizer: bool
    raw_spec: Mapping[str, Any]
    """The spec as it is in the cluster."""
    spec: StatefulSparkJobSpec | None
    """The same, checked; None when it is not valid."""
    problem: str | None
    """Why it is not valid: field and remedy."""
    status: StatefulSparkJobStatus
    pod: DriverPod | None = None
    driver: Driver | None = None
    """None: it does not answer."""
    stored: SnapshotInfo | None = None
    """The newest checkpoint in storage; looked for when no driver answers."""
    executors: int = 0
    """Executor pods that run."""
    out_of_memory: tuple[OutOfMemory, ...] = ()
    snapshots: tuple[SnapshotSeen, ...] = ()
    initial: SnapshotSeen | None = None
    """The StateSnapshot that ``spec.initialSnapshot`` names, of whatever job."""
    kept_paths: frozenset[str] | None = None
    """Checkpoints that are in the job's folder, told by its driver, else by storage; None when nobody was asked."""
    children_intact: bool = True
    """Whether service, config map, secret, account, role and disruption budget are there and as they should be."""
