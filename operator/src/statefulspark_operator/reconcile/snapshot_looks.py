"""One look at a StateSnapshot: observe, plan, apply."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.kubernetes import validate_on_kubernetes
from statefulspark.errors import ConflictError, CorruptDataError, InvalidInputError, UnavailableError
from statefulspark_operator.api.drivers import Driver, Failure
from statefulspark_operator.api.names import (
    API_VERSION,
    FINALIZER,
    LABEL_JOB,
    LABEL_SNAPSHOT_STATE,
    LABEL_SNAPSHOT_TYPE,
    LABEL_TRIGGER_TYPE,
    SNAPSHOT_KIND,
)
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType, StateSnapshotStatus
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile import pods
from statefulspark_operator.reconcile.apply import Hands
from statefulspark_operator.reconcile.mirror import Mirror
from statefulspark_operator.reconcile.observation import DriverPod
from statefulspark_operator.reconcile.observe import look_at_driver
from statefulspark_operator.reconcile.reach import way_to_driver
from statefulspark_operator.reconcile.snapshots import FINAL, SnapshotObservation, SnapshotPlan, plan_snapshot
from statefulspark_operator.reconcile.specs import checked_snapshot_spec

_log = structlog.get_logger("statefulspark.operator.snapshots")


class SnapshotLooks:
    """Looks at snapshots.

    Args:
        hands: What plans are carried out with.
        mirror: What watching has brought.
        may_act: Whether this replica leads; asked before every write.
        now: The time, with its zone.
    """

    def __init__(self, hands: Hands, mirror: Mirror, *, may_act: Callable[[], bool], now: Callable[[], datetime]) -> None:
        self._hands = hands
        self._mirror = mirror
        self._may_act = may_act
        self._now = now

    async def look(self, namespace: str, name: str) -> float | None:
        """Look at one snapshot; returns after how many seconds to look again, None for never."""
        known = self._mirror.snapshot(namespace, name)
        if known is not None and _settled(known):
            return None
        tree = await self._hands.eyes.cluster.get(API_VERSION, SNAPSHOT_KIND, namespace, name)
        if tree is None:
            return None
        seen = await self._observe(tree)
        decided = plan_snapshot(seen)
        if not self._may_act():
            return None
        await self._apply(tree, seen, decided)
        return decided.look_again_s

    async def _observe(self, tree: Tree) -> SnapshotObservation:
        metadata = tree["metadata"]
        spec, problem = checked_snapshot_spec(tree)
        status = StateSnapshotStatus.read(tree.get("status"))
        job = self._mirror.job(metadata["namespace"], spec.job_reference.name) if spec is not None else None
        found, max_parallelism, why = None, None, None
        existing = spec is not None and (
            (spec.savepoint is not None and spec.savepoint.already_exists)
            or (spec.checkpoint is not None and spec.checkpoint.path is not None)
        )
        if existing and status.state is SnapshotState.TRIGGER_PENDING and spec is not None and metadata.get("deletionTimestamp") is None:
            found, max_parallelism, why = await self._find(metadata["namespace"], spec, job)
        return SnapshotObservation(
            now=self._now(),
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 0),
            created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
            deleting=metadata.get("deletionTimestamp") is not None,
            has_finalizer=FINALIZER in (metadata.get("finalizers") or ()),
            spec=spec,
            problem=problem,
            status=status,
            job_exists=job is not None,
            job_deleting=job is not None and job["metadata"].get("deletionTimestamp") is not None,
            driver=await self._driver(job) if job is not None and not existing else None,
            found=found,
            found_max_parallelism=max_parallelism,
            found_problem=why,
        )

    async def _find(self, namespace: str, spec: Any, job: Tree | None) -> tuple[Any, int | None, Failure | None]:
        job_spec = _job_spec(job)
        path = spec.savepoint.path if spec.savepoint is not None else spec.checkpoint.path
        if job_spec is None:
            return None, None, Failure(reason="JobGone", message="without its job nobody says how to reach its storage")
        try:
            storage = job_spec.checkpointing.storage
            keys = await self._hands.eyes.secrets.keys(namespace, storage.credentials_secret)
            found = await self._hands.eyes.storage.find(path, storage, keys)
        except (InvalidInputError, CorruptDataError) as error:
            return None, None, Failure(reason="NotRestorable", message=str(error))
        return found.info, found.max_parallelism, None

    async def _driver(self, job: Tree) -> Driver | None:
        return await look_at_driver(self._hands.eyes, job, self._pod(job), operations=True)

    def _pod(self, job: Tree) -> DriverPod | None:
        return pods.driver_pod(self._mirror.driver_pod(job["metadata"]["namespace"], job["metadata"]["name"]))

    async def _apply(self, tree: Tree, seen: SnapshotObservation, decided: SnapshotPlan) -> None:
        cluster, metadata = self._hands.eyes.cluster, tree["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        if decided.status != seen.status and not (seen.deleting and decided.remove_finalizer):
            await cluster.apply_status(API_VERSION, SNAPSHOT_KIND, namespace, name, decided.status.to_status())
        await self._label(tree, seen, decided)
        for event in decided.events:
            await self._hands.events.tell(tree, event.reason, event.message, warning=event.warning)
        if decided.dispose and seen.spec is not None and decided.status.path is not None:
            await self._dispose(tree, seen, decided.status.path)
        if decided.ask is not None and seen.spec is not None:
            await self._ask(namespace, seen, decided)
        if decided.add_finalizer or decided.remove_finalizer:
            others = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
            patch = {
                "metadata": {
                    "finalizers": [*others, FINALIZER] if decided.add_finalizer else others,
                    "resourceVersion": metadata["resourceVersion"],
                }
            }
            if decided.status != seen.status:
                patch["metadata"].pop("resourceVersion")
            await cluster.merge(API_VERSION, SNAPSHOT_KIND, namespace, name, patch)

    async def _label(self, tree: Tree, seen: SnapshotObservation, decided: SnapshotPlan) -> None:
        """Labels say what the status says, so that snapshots can be selected."""
        if seen.spec is None or seen.deleting:
            return
        wanted = {
            LABEL_JOB: seen.spec.job_reference.name,
            LABEL_SNAPSHOT_TYPE: (SnapshotType.SAVEPOINT if seen.spec.savepoint is not None else SnapshotType.CHECKPOINT).value,
            LABEL_SNAPSHOT_STATE: decided.status.state.value,
        }
        labels = tree["metadata"].get("labels") or {}
        if LABEL_TRIGGER_TYPE not in labels:
            wanted[LABEL_TRIGGER_TYPE] = SnapshotTrigger.MANUAL.value
        if any(labels.get(label) != value for label, value in wanted.items()):
            metadata = tree["metadata"]
            await self._hands.eyes.cluster.merge(
                API_VERSION, SNAPSHOT_KIND, metadata["namespace"], metadata["name"], {"metadata": {"labels": wanted}}
            )

    async def _ask(self, namespace: str, seen: SnapshotObservation, decided: SnapshotPlan) -> None:
        job = self._mirror.job(namespace, seen.spec.job_reference.name) if seen.spec is not None else None
        if job is None or decided.ask is None:
            return
        way = await way_to_driver(self._hands.eyes.secrets, namespace, job["metadata"]["name"], self._pod(job))
        if way is None:
            return
        kind, key, target = decided.ask["kind"], decided.ask["key"], decided.ask["target"]
        try:
            await self._hands.eyes.drivers.ask(
                way.url, way.token, str(kind), str(key), {"target": target} if kind == "savepoint" else None, timeout_s=600
            )
        except ConflictError as error:
            _log.info("the driver is busy", snapshot=seen.name, error=str(error)[:200])

    async def _dispose(self, tree: Tree, seen: SnapshotObservation, path: str) -> None:
        """Delete the savepoint from storage; when that cannot be done, say so and let the object go: a finalizer must not hang."""
        namespace = tree["metadata"]["namespace"]
        job_spec = _job_spec(self._mirror.job(namespace, seen.spec.job_reference.name)) if seen.spec is not None else None
        waited_s = (seen.now - datetime.fromisoformat(tree["metadata"]["deletionTimestamp"])).total_seconds()
        try:
            if job_spec is None:
                raise InvalidInputError("its job is gone, and with it how to reach its storage")
            storage = job_spec.checkpointing.storage
            keys = await self._hands.eyes.secrets.keys(namespace, storage.credentials_secret)
            await self._hands.eyes.storage.dispose(path, storage, keys)
        except InvalidInputError as error:
            await self._hands.events.tell(tree, "DisposalSkipped", f"{path} stays in storage: {error}", warning=True)
        except UnavailableError as error:
            if waited_s < 300:
                raise
            await self._hands.events.tell(tree, "DisposalSkipped", f"{path} stays in storage: {error}", warning=True)


def _settled(tree: Tree) -> bool:
    """Whether nothing is left to do about a snapshot as watching has brought it; what changes it afterwards is another event."""
    metadata, status = tree["metadata"], StateSnapshotStatus.read(tree.get("status"))
    labels = metadata.get("labels") or {}
    held = FINALIZER in (metadata.get("finalizers") or ()) or "checkpoint" in (tree.get("spec") or {})
    told = labels.get(LABEL_SNAPSHOT_STATE) == status.state.value and LABEL_TRIGGER_TYPE in labels
    acted = status.state in FINAL and status.observed_generation == metadata.get("generation")
    return acted and held and told and metadata.get("deletionTimestamp") is None


def _job_spec(job: Tree | None) -> StatefulSparkJobSpec | None:
    if job is None:
        return None
    try:
        return validate_on_kubernetes(job).spec
    except InvalidInputError:
        return None
