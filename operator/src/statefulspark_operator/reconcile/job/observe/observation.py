"""The observed state of a job as plain data, gathered by ``observe`` and read by ``plan``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Driver, Failure
from statefulspark_operator.api.jobs import SnapshotInfo, StatefulSparkJobStatus
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType
from statefulspark_operator.builders.pods import STOP_GRACE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a driver's container, from its termination message (docs/formats.md)."""

    state: str
    """``SUSPENDED``, ``FAILED``, ``FINISHED`` or ``CANCELED``."""
    batch: int
    path: str | None
    error: Failure | None
    checkpoint: SnapshotInfo | None = None
    """The final checkpoint, if the job ended with one."""
    savepoint: SnapshotInfo | None = None
    """The same, if it is a savepoint."""
    kept: frozenset[int] | None = None
    """Numbers of the checkpoints that the job keeps; None when the driver did not say."""


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
    """Kubernetes' deletionTimestamp, which includes the grace period: when the pod must have terminated."""
    ip: str | None
    restarts: int
    """Number of container restarts by the kubelet."""
    ending: Ending | None
    """Set once the container has terminated without being restarted."""
    trouble: Failure | None
    """Reason for which the pod does not start: image, scheduling, configuration or crash loop."""
    created_at: datetime | None = None
    started: bool = False
    """True once its container has run."""
    running_since: datetime | None = None
    """Start of its container, which may not be its first; None while it does not run."""
    failure: Failure | None = None
    """Reason for which the pod as a whole failed, for example an eviction; None if it has not, or Kubernetes gives no reason."""
    key_id: str | None = None
    """The key of the operator that its Secrets were made with; None if an operator made it that had none."""
    oom_killed: bool = False
    """True if its container was OOM-killed."""
    stop_grace_s: int = STOP_GRACE_S
    """Grace period, in seconds, when the operator stops it."""

    @property
    def over(self) -> bool:
        """True if the pod has terminated."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def termination(self) -> str:
        """Text about a pod that has terminated without a report: that it has, with the reason and the remedy if they are known."""
        why = f" ({self.failure.reason}: {self.failure.message})" if self.failure is not None else ""
        return f"The driver pod terminated{why}{' and was OOM-killed. Increase spec.driver.memory' if self.oom_killed else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A permanent rejection of the driver's pod, or of another child that it needs, by the API server: quota, LimitRange, admission."""

    message: str
    """The API server's message."""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """An OOM-killed executor."""

    pod: str
    uid: str
    limit_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadExecutor:
    """An executor pod that has ended, of a container of the driver that has ended too."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSnapshot:
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
    error: str | None = None
    """Error of the last failed attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Observed state of a job at one point in time."""

    now: datetime
    name: str
    namespace: str
    uid: str
    generation: int
    deleting: bool
    has_finalizer: bool
    spec: StatefulSparkJobSpec | None
    """The validated spec; None if it is invalid."""
    problem: str | None
    """Reason for which the spec is invalid: field and remedy."""
    status: StatefulSparkJobStatus
    pod: DriverPod | None = None
    driver: Driver | None = None
    """None if the driver does not respond."""
    executors: int = 0
    """Number of running executor pods."""
    executor_trouble: Failure | None = None
    """Reason for which an executor does not run: scheduling, image, volume, eviction, or a refusal by the API server."""
    out_of_memory: tuple[OutOfMemory, ...] = ()
    dead_executors: tuple[DeadExecutor, ...] = ()
    snapshots: tuple[ObservedSnapshot, ...] = ()
    initial: ObservedSnapshot | None = None
    """The StateSnapshot that ``spec.initialSnapshot`` names, of any job."""
    initial_problem: str | None = None
    """Reason for which the job may not start from that snapshot's path."""
    kept_paths: frozenset[str] | None = None
    """Retained checkpoints in the job's directory, as reported by its driver; None if they have not been reported."""
    name_conflict: str | None = None
    """Reason for which children could not be created at the last attempt: an object of another owner has the name."""
    refusal: Refusal | None = None
    """Refusal of the driver's pod by the API server at the last attempt; None if it was not refused."""
    secrets_due: bool = False
    """True if it is time to see to the Secrets of a job with a driver: whether they are there, and its certificate near its end."""
    other_key: bool = False
    """True for a driver with Secrets of another key than the operator has now, which it cannot call."""
    children_intact: bool = True
    """True if no other client has deleted or changed a child since the operator applied it."""
