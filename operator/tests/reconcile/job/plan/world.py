"""A small world for plans: one job, its driver's pod, and a driver that behaves. It carries out actions as the cluster would, and can stop in between.

What it is not: it knows nothing of how plans are made. It only remembers what the outside would see, which is what tests look at.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark.config.state_backend import StateBackendType
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import default_max_parallelism
from statefulspark_operator.api.drivers import Driver, Failure
from statefulspark_operator.api.jobs import SnapshotInfo, StatefulSparkJobStatus
from statefulspark_operator.api.snapshots import SnapshotState
from statefulspark_operator.reconcile.job.observe import kept_checkpoints
from statefulspark_operator.reconcile.job.observe.observation import (
    DeadExecutor,
    DriverPod,
    Ending,
    Observation,
    ObservedSnapshot,
    OutOfMemory,
    Refusal,
)
from statefulspark_operator.reconcile.job.plan.actions import (
    Action,
    AddFinalizer,
    ApplyChildren,
    AskDriver,
    CheckSecrets,
    CreateDriver,
    DeleteDriver,
    DeleteExecutor,
    DeleteSnapshot,
    Plan,
    RemoveFinalizer,
    TakeSnapshot,
)
from statefulspark_operator.reconcile.job.plan.planner import plan
from statefulspark_operator.reconcile.state_backends import with_state_backend
from tests.reconcile.job.plan import driver_process
from tests.reconcile.job.plan.driver_process import Process

START = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


QUIET_ROUNDS = 8


class OperatorDiedError(Exception):
    """The operator ends here; the next one looks anew."""


@dataclass
class World:
    """Everything outside of the operator."""

    spec: dict[str, Any]
    seed: int = 0
    now: datetime = START
    generation: int = 1
    deleting: bool = False
    finalizer: bool = False
    gone: bool = False
    status: StatefulSparkJobStatus = field(default_factory=StatefulSparkJobStatus)
    pod: DriverPod | None = None
    process: Process | None = None
    pods_made: int = 0
    creations: int = 0
    """Attempts to make a pod."""
    broken_images: frozenset[str] = frozenset()
    """Images whose job fails when it is started."""
    stuck_images: frozenset[str] = frozenset()
    """Images whose driver says RUNNING while its query fails again and again at one batch."""
    failing_images: frozenset[str] = frozenset()
    """Images whose driver says that each of its batches fails."""
    refused_images: frozenset[str] = frozenset()
    """Images whose driver's pod the API server refuses."""
    refusal: Refusal | None = None
    waits: bool = False
    """The sources have nothing new: no batch is run."""
    own_checkpoints: bool = True
    """The driver takes checkpoints by itself; else only when asked."""
    failing_stops: int = 0
    """How many requests to stop fail before one succeeds."""
    failing_rescales: int = 0
    endless_rescale: bool = False
    """A rescale takes effect, and the driver never says that it has ended."""
    """How many rescales find no room before one does."""
    deletes_checkpoints: bool = True
    """A driver that is canceled can delete its checkpoints."""
    hangs: bool = False
    """The driver answers, but what it is asked for never ends."""
    canceled_and_kept: int = 0
    """How often a driver was canceled and had to keep its state."""
    deaf: bool = False
    """The driver does not answer."""
    missing_slots: int = 0
    """Slots that do not come up, as without executors."""
    executor_trouble: Failure | None = None
    """Reason that Kubernetes gives for missing executors."""
    driver_state: str = "RUNNING"
    """What the driver says of a job that is started."""
    out_of_memory: tuple[OutOfMemory, ...] = ()
    dead_executors: tuple[DeadExecutor, ...] = ()
    oom_kills: int = 0
    """Slots that the kernel has ended in the one executor."""
    stuck: bool = False
    """Deleted pods do not go, as on a lost node."""
    snapshots: dict[str, ObservedSnapshot] = field(default_factory=dict)
    others: dict[str, ObservedSnapshot] = field(default_factory=dict)
    """Snapshots of other jobs."""
    taken: list[TakeSnapshot] = field(default_factory=list)
    applied: list[StatefulSparkJobSpec] = field(default_factory=list)
    """Specs that children were made from."""
    asked_checkpoints: int = 0
    """Checkpoints that the operator has asked the driver for."""
    savepoints: int = 0
    checkpoints: int = 0
    kept: list[SnapshotInfo] = field(default_factory=list)
    """Checkpoints in the job's folder."""
    listings: int = 0
    """How often somebody asked for them."""
    events: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    """Images that were started, in order."""
    folders: list[str | None] = field(default_factory=list)
    """The job's folder of each start, in order."""
    key_groups: dict[str | None, int] = field(default_factory=dict)
    """Number of key groups of the state in each folder."""
    applied_parallelism: int | None = None
    die_after: int | None = None
    """The operator dies after so many writes."""
    two_drivers: bool = False
    status_writes: int = 0

    default_state_backend: StateBackendType = StateBackendType.ROCKSDB
    """The operator's setting."""

    # -- what the operator sees ------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        document = {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "counts", "namespace": "shop", "uid": "u-1"},
            "spec": self.spec,
            "status": self.status.to_status(),
        }
        try:
            spec, problem = validate_on_kubernetes(with_state_backend(document, self.default_state_backend)).spec, None
        except InvalidInputError as error:
            spec, problem = None, str(error)
        listing = kept_checkpoints.needs_listing(spec, self.status, tuple(self.snapshots.values()), self.now)
        self.listings += listing
        driver = driver_process.status(self)
        if driver is not None and listing:
            driver = replace(driver, retained=tuple(self.kept))
        return Observation(
            now=self.now,
            name="counts",
            namespace="shop",
            uid="u-1",
            generation=self.generation,
            deleting=self.deleting,
            has_finalizer=self.finalizer,
            spec=spec,
            problem=problem,
            status=StatefulSparkJobStatus.model_validate(json.loads(json.dumps(self.status.to_status()))),
            pod=self.pod,
            driver=driver,
            refusal=self.refusal,
            executor_trouble=self.executor_trouble,
            kept_paths=self._kept_paths(driver),
            snapshots=tuple(self.snapshots.values()),
            out_of_memory=self.out_of_memory,
            dead_executors=self.dead_executors,
            initial=self.others.get(spec.initial_snapshot.name) if spec is not None and spec.initial_snapshot is not None else None,
        )

    def _kept_paths(self, driver: Driver | None) -> frozenset[str] | None:
        """What a driver says, and says when it ends; storage is never asked."""
        if driver is not None:
            return frozenset(info.path for info in driver.retained) if driver.retained is not None else None
        ended = self.pod is not None and self.pod.ending is not None
        return frozenset(info.path for info in self.kept) if ended else None

    # -- what the operator does ------------------------------------------------------------------------------------------

    def reconcile(self) -> Plan:
        """One look; the status is written first, then the actions, one by one."""
        observed = self.observe()
        decided = plan(observed)
        if decided.status != observed.status:
            self._write()
            self.status_writes += 1
        self.status = decided.status
        self.events += [event.reason for event in decided.events]
        self.messages += [event.message for event in decided.events]
        for action in decided.actions:
            self._write()
            self._carry_out(action)
        return decided

    def _write(self) -> None:
        if self.die_after is not None:
            self.die_after -= 1
            if self.die_after < 0:
                self.die_after = None
                raise OperatorDiedError

    def _carry_out(self, action: Action) -> None:
        match action:
            case AddFinalizer():
                self.finalizer = True
            case RemoveFinalizer():
                self.finalizer = False
                self.gone = self.deleting
            case ApplyChildren():
                self.applied_parallelism = action.parallelism
                self.applied.append(action.spec)
            case CreateDriver():
                self._create(action)
            case DeleteDriver():
                self._delete(action)
            case DeleteExecutor():
                self.dead_executors = tuple(each for each in self.dead_executors if each.uid != action.uid)
            case AskDriver():
                driver_process.ask(self, action)
            case CheckSecrets():
                pass  # this world has none
            case TakeSnapshot():
                self._take(action)
            case DeleteSnapshot():
                self.snapshots.pop(action.name, None)

    def _take(self, action: TakeSnapshot) -> None:
        if action.name in self.snapshots:
            return
        self.taken.append(action)
        self.snapshots[action.name] = ObservedSnapshot(
            name=action.name,
            trigger=action.trigger,
            type=action.type,
            state=SnapshotState.COMPLETED if action.existing_path is not None else SnapshotState.TRIGGER_PENDING,
            created_at=self.now,
            path=action.existing_path,
            checkpoint_id=int(action.existing_path.rpartition("-")[2]) if action.existing_path is not None else None,
        )

    def _create(self, action: CreateDriver) -> None:
        if self.pod is not None:
            return
        self.creations += 1
        if action.spec.image in self.refused_images:
            used = f"{self.creations}Gi"  # the message of a quota changes
            self.refusal = Refusal(message=f'pods "counts-driver" is forbidden: exceeded quota: team, used: {used}', at=self.now)
            return
        self.refusal = None
        if self.process is not None:
            self.two_drivers = True
        self.pods_made += 1
        self.pod = DriverPod(
            name="counts-driver",
            uid=f"pod-{self.pods_made}",
            generation=action.generation,
            phase="Pending",
            deleting=False,
            gone_by=None,
            ip="10.0.0.1",
            restarts=0,
            ending=None,
            trouble=None,
            created_at=self.now,
        )
        spec = action.spec
        image = spec.image or "the operator's"
        self.images.append(image)
        parallelism = self.applied_parallelism or spec.parallelism
        folder = self.status.job_id
        self.folders.append(folder)
        self.key_groups.setdefault(folder, spec.max_parallelism if spec.max_parallelism_given else default_max_parallelism(parallelism))
        self.process = Process(image=image, parallelism=parallelism, folder=folder)

    def _delete(self, action: DeleteDriver) -> None:
        if self.pod is None or self.pod.uid != action.uid:
            return
        gone_by = self.pod.gone_by or self.now + timedelta(seconds=action.grace_s)
        self.pod = replace(self.pod, deleting=True, gone_by=gone_by)
        if action.grace_s == 0:
            self.pod, self.process = None, None

    # -- what happens by itself ------------------------------------------------------------------------------------------

    def tick(self, seconds: float = 1.0) -> None:
        """Time passes."""
        self.now += timedelta(seconds=seconds)
        if self.pod is not None and self.pod.deleting and not self.stuck:
            self.pod, self.process = None, None
        if self.pod is None:
            return
        process = self.process
        if process is None:
            return
        process.age += 1
        if self.pod.phase == "Pending":
            self.pod = replace(self.pod, phase="Running", started=True)
        if process.age == 3 and process.image in self.broken_images:
            self.end("FAILED", Failure(reason="UserFunction", message="boom"))
        elif process.age >= 5 and self.own_checkpoints and process.image not in self.stuck_images | self.failing_images:
            process.last_checkpoint = self.new_snapshot()

    def evict(self) -> None:
        """The kubelet ends the pod as a whole."""
        assert self.pod is not None
        failure = Failure(reason="Evicted", message="The node was low on resource: ephemeral-storage.")
        self.pod, self.process = replace(self.pod, phase="Failed", ip=None, failure=failure), None

    def kill_driver(self) -> None:
        """The pod is gone with everything in it."""
        self.pod, self.process = None, None

    def settle(self, rounds: int = 80, *, seconds: float = 1.0) -> None:
        """Let operator and world go on for a number of looks, or until nothing has happened for a while and nobody wants to look soon."""
        quiet = 0
        for _ in range(rounds):
            before = self.status
            try:
                decided = self.reconcile()
            except OperatorDiedError:
                continue
            self.tick(seconds)
            still = decided.requeue_after_s is None and not decided.actions and _steady(before) == _steady(self.status)
            quiet = quiet + 1 if still else 0
            if quiet > QUIET_ROUNDS and (self.process is None or self.process.age > QUIET_ROUNDS):
                return

    def change(self, **fields: Any) -> None:
        """A person edits the spec."""
        self.spec = {**self.spec, **fields}
        self.generation += 1

    def end(self, state: str, error: Failure | None, path: str | None = None, kept: frozenset[int] | None = None) -> None:
        """The driver ends and says so."""
        if self.pod is None:
            return
        path = path or self.new_snapshot().path
        self.pod = replace(self.pod, phase="Succeeded", ending=Ending(state=state, batch=1, path=path, error=error, kept=kept))
        self.process = None

    def new_snapshot(self, folder: str = "") -> SnapshotInfo:
        """The driver has taken a snapshot."""
        self.checkpoints += 1
        path = f"s3://bucket/{folder}chk-{self.checkpoints}"
        info = SnapshotInfo(id=self.checkpoints, path=path, completed_at=self.now, batch=driver_process.committed_batch(self))
        if not folder:
            kept = self.spec.get("checkpointing", {}).get("retention", {}).get("count", 1)
            self.kept = [*self.kept, info][-kept:]
        return info


def condition(world: World, type_: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    found = next(each for each in world.status.conditions if each.type == type_)
    return found.status.value, found.reason


def deaths(seed: int) -> random.Random:
    """Where operators die."""
    return random.Random(seed)


def _steady(status: StatefulSparkJobStatus) -> StatefulSparkJobStatus:
    """The status without what changes all the time."""
    return status.model_copy(update={"batch": 0, "lag": None, "last_checkpoint": None, "progress_at": None})
