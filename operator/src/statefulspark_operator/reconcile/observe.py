"""Looks at a job: its object, pods, driver, storage and snapshots, gathered into one `Observation`. Reads only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import structlog

from statefulspark.config.checkpointing import StorageSpec
from statefulspark.config.job import DesiredState, StatefulSparkJobSpec
from statefulspark.errors import CorruptDataError, InvalidInputError, StatefulSparkError
from statefulspark_operator.api.drivers import Driver
from statefulspark_operator.api.jobs import LifecycleState, StatefulSparkJobStatus
from statefulspark_operator.api.names import FINALIZER, LABEL_TRIGGER_TYPE
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType, StateSnapshotStatus
from statefulspark_operator.clients.drivers import Drivers
from statefulspark_operator.clients.kubernetes import Cluster, Tree
from statefulspark_operator.clients.secrets import SecretValues
from statefulspark_operator.clients.snapshots import Keys, SnapshotStorage
from statefulspark_operator.reconcile import pods, retained
from statefulspark_operator.reconcile.observation import DriverPod, Observation, SnapshotSeen
from statefulspark_operator.reconcile.reach import forget_way, way_to_driver
from statefulspark_operator.reconcile.specs import CheckedSpecs

_log = structlog.get_logger("statefulspark.operator.observe")
_REST: Final = frozenset({LifecycleState.SUSPENDED, LifecycleState.FINISHED})
_T = TypeVar("_T")


class Mirror(Protocol):
    """What watching has brought: objects as they were last seen."""

    def job(self, namespace: str, name: str) -> Tree | None:
        """The job's object."""

    def driver_pod(self, namespace: str, name: str) -> Tree | None:
        """The pod of the driver of job ``name``."""

    def executor_pods(self, namespace: str, name: str) -> list[Tree]:
        """Pods of the executors of job ``name``."""

    def snapshots(self, namespace: str, name: str) -> list[Tree]:
        """StateSnapshots of job ``name``."""

    def snapshot(self, namespace: str, name: str) -> Tree | None:
        """One StateSnapshot, of whatever job."""

    def children_intact(self, namespace: str, name: str) -> bool:
        """Whether no child of job ``name`` was deleted or changed by others since it was applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eyes:
    """What an observation is gathered with."""

    cluster: Cluster
    drivers: Drivers
    storage: SnapshotStorage
    secrets: SecretValues
    mirror: Mirror
    specs: CheckedSpecs = field(default_factory=CheckedSpecs)
    default_image: str | None = None
    """For jobs that name none; without one such jobs are not valid."""
    makes_accounts: bool = True
    """Whether this operator makes service accounts; without one jobs must name theirs."""


async def observe(eyes: Eyes, job: Tree, now: datetime) -> Observation:
    """Look at ``job``. A driver or a store that does not answer is an observation too, not an error."""
    metadata = job["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    spec, problem = _checked(eyes, job)
    status = StatefulSparkJobStatus.read(job.get("status"))
    pod = pods.driver_pod(eyes.mirror.driver_pod(namespace, name))
    asked = status.transition is not None or metadata.get("deletionTimestamp") is not None
    snapshots = tuple(_snapshot(tree) for tree in eyes.mirror.snapshots(namespace, name))
    listing = retained.matter(spec, status, snapshots, now)
    driver = await look_at_driver(eyes, job, pod, operations=asked, checkpoints=listing)
    running, lost = pods.executors(eyes.mirror.executor_pods(namespace, name))
    stored = await _from_storage(eyes, namespace, spec, status, eyes.storage.newest) if _storage_matters(status, pod, driver) else None
    return Observation(
        now=now,
        name=name,
        namespace=namespace,
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        deleting=metadata.get("deletionTimestamp") is not None,
        has_finalizer=FINALIZER in (metadata.get("finalizers") or ()),
        raw_spec=job.get("spec") or {},
        spec=spec,
        problem=problem,
        status=status,
        pod=pod,
        driver=driver,
        stored=stored,
        executors=running,
        out_of_memory=lost,
        snapshots=snapshots,
        initial=_initial(eyes, namespace, spec),
        kept_paths=await _kept_paths(eyes, namespace, spec, status, driver) if listing and (driver is not None or pod is None) else None,
        children_intact=eyes.mirror.children_intact(namespace, name),
    )


def _checked(eyes: Eyes, job: Mapping[str, Any]) -> tuple[StatefulSparkJobSpec | None, str | None]:
    """The spec, or why it cannot be acted on: by itself, or by what this operator may do."""
    spec, problem = eyes.specs.check(job)
    if spec is None:
        return None, problem
    if spec.state is DesiredState.RUNNING:
        if spec.image is None and eyes.default_image is None:
            return None, "spec.image: is not given, and this operator has no default. Name the image of the job"
        if spec.service_account is None and not eyes.makes_accounts:
            return None, "spec.serviceAccount: is not given, and this operator makes none. Name the service account of the driver"
    return spec, None


async def look_at_driver(eyes: Eyes, job: Tree, pod: DriverPod | None, *, operations: bool, checkpoints: bool = False) -> Driver | None:
    """What the driver in ``pod`` says, with ``operations`` also of what it was asked before; None when it does not answer."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    try:
        way = await way_to_driver(eyes.secrets, namespace, name, pod)
        return await eyes.drivers.look(way.url, way.token, operations=operations, checkpoints=checkpoints) if way is not None else None
    except StatefulSparkError as error:
        if isinstance(error, InvalidInputError):
            forget_way(eyes.secrets, namespace, name)
        _log.debug("driver does not answer", job=name, namespace=namespace, error=str(error)[:200])
        return None


def _storage_matters(status: StatefulSparkJobStatus, pod: DriverPod | None, driver: Driver | None) -> bool:
    """Storage is asked when nobody else knows, and the answer is wanted."""
    if driver is not None or status.lifecycle_state is None:
        return False
    if status.lifecycle_state in _REST:
        return status.last_checkpoint is None and status.last_savepoint is None and status.attempt is not None
    return pod is None or pod.over


async def _from_storage(
    eyes: Eyes,
    namespace: str,
    spec: StatefulSparkJobSpec | None,
    status: StatefulSparkJobStatus,
    look: Callable[[str, StorageSpec, Keys | None], Awaitable[_T]],
) -> _T | None:
    """What ``look`` finds in the job's folder; None when there is none, or storage does not answer."""
    if spec is None or status.job_id is None:
        return None
    checkpointing = spec.checkpointing
    try:
        keys = await eyes.secrets.keys(namespace, checkpointing.storage.credentials_secret)
        return await look(f"{checkpointing.dir}/{status.job_id}", checkpointing.storage, keys)
    except (StatefulSparkError, CorruptDataError) as error:
        _log.warning("storage does not answer", job_id=status.job_id, error=str(error)[:300])
        return None


async def _kept_paths(
    eyes: Eyes, namespace: str, spec: StatefulSparkJobSpec | None, status: StatefulSparkJobStatus, driver: Driver | None
) -> frozenset[str] | None:
    """Which checkpoints there are: the driver knows, and when none runs, storage does."""
    if driver is not None:
        return frozenset(info.path for info in driver.retained) if driver.retained is not None else None
    if status.lifecycle_state not in retained.REST:
        return None
    return await _from_storage(eyes, namespace, spec, status, eyes.storage.kept)


def _initial(eyes: Eyes, namespace: str, spec: StatefulSparkJobSpec | None) -> SnapshotSeen | None:
    if spec is None or spec.initial_snapshot is None:
        return None
    tree = eyes.mirror.snapshot(namespace, spec.initial_snapshot.name)
    return _snapshot(tree) if tree is not None else None


def _snapshot(tree: Tree) -> SnapshotSeen:
    metadata = tree["metadata"]
    status = StateSnapshotStatus.read(tree.get("status"))
    labels = metadata.get("labels") or {}
    trigger = labels.get(LABEL_TRIGGER_TYPE, SnapshotTrigger.MANUAL)
    spec = tree.get("spec") or {}
    return SnapshotSeen(
        name=metadata["name"],
        trigger=SnapshotTrigger(trigger) if trigger in set(SnapshotTrigger) else SnapshotTrigger.MANUAL,
        type=SnapshotType.CHECKPOINT if "checkpoint" in spec else SnapshotType.SAVEPOINT,
        state=SnapshotState(status.state),
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        path=status.path,
        checkpoint_id=status.checkpoint_id,
        max_parallelism=status.max_parallelism,
        deleting=metadata.get("deletionTimestamp") is not None,
    )
