"""A cluster in memory for whole looks: objects as an API server keeps them, pods that start, drivers that answer, and calls that fail on demand."""

from __future__ import annotations

import base64
import copy
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark_operator.api.drivers import Driver, Operation, Slot
from statefulspark_operator.api.jobs import SnapshotInfo
from statefulspark_operator.builders.keys import OperatorKey
from statefulspark_operator.clients.connection import NamespaceTerminatingError
from statefulspark_operator.clients.events import EventRecorder
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.credentials import JobSecrets
from statefulspark_operator.reconcile.job.job_reconciler import ResyncIntervals
from statefulspark_operator.reconcile.object_cache import ObjectCache
from statefulspark_operator.reconcile.reconciler import Reconciler
from statefulspark_operator.reconcile.tenancy import Tenancy

Tree = dict[str, Any]
NAMESPACE = "shop"


class MemoryCluster:
    """Objects by kind and name. ``trouble`` is asked before and after each call and may raise; ``pause`` is awaited there and may take its time."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Tree] = {}
        self.cache = ObjectCache()
        self.caches = [self.cache]
        """Of all replicas."""
        self.trouble: Callable[[str], None] = lambda moment: None
        self.pause: Callable[[str], Awaitable[None]] | None = None
        self.deaf = False
        """Watches bring nothing."""
        self.ending = False
        """The namespace is being deleted."""
        self.two_drivers = False
        self.refused = 0
        """Objects that were not created, because the namespace is being deleted."""
        self.clock: Callable[[], str] = lambda: "2026-01-01T00:00:00Z"
        """When objects are made."""
        self._version = 0

    async def at(self, moment: str) -> None:
        """A moment before or after a call."""
        if self.pause is not None:
            await self.pause(moment)
        self.trouble(moment)

    # -- the API ---------------------------------------------------------------------------------------------------------

    async def namespace_terminating(self, namespace: str) -> bool:
        await self.at("ends")
        return self.ending

    def _check_creation(self, kind: str, name: str) -> None:
        if self.ending and (kind, name) not in self.objects:
            self.refused += 1
            raise NamespaceTerminatingError(
                f"{kind} {name}: unable to create new content in namespace {NAMESPACE} because it is being terminated"
            )

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Tree | None:
        await self.at("get")
        return copy.deepcopy(self.objects.get((kind, name)))

    async def apply(self, document: Tree) -> Tree:
        await self.at("apply")
        self._check_creation(document["kind"], document["metadata"]["name"])
        before = self.objects.get((document["kind"], document["metadata"]["name"]))
        wanted = document["metadata"].get("uid")
        if wanted is not None and (before is None or before["metadata"]["uid"] != wanted):
            raise ConflictError(f"uid mismatch: the provided object specified uid {wanted}")
        stored = self.store(document if before is None else _over(before, document))
        await self.at("applied")
        return copy.deepcopy(stored)

    async def apply_status(self, api_version: str, kind: str, namespace: str, name: str, status: Tree, *, resource_version: str) -> Tree:
        await self.at("apply_status")
        found = self.objects.get((kind, name))
        if found is None:
            raise InvalidInputError(f"{kind} {name}: not found")
        _check_version(found, resource_version)
        stored = self.store({**found, "status": copy.deepcopy(status)})
        await self.at("status applied")
        return copy.deepcopy(stored)

    async def create(self, document: Tree, *, dry_run: bool = False) -> Tree | None:
        await self.at("create")
        document = copy.deepcopy(document)
        metadata = document["metadata"]
        metadata.setdefault("name", f"{metadata.get('generateName')}{self._version}")
        if (document["kind"], metadata["name"]) in self.objects:
            return None
        self._check_creation(document["kind"], metadata["name"])
        if dry_run:
            return document
        stored = self.store(document)
        await self.at("created")
        return copy.deepcopy(stored)

    async def patch(self, api_version: str, kind: str, namespace: str, name: str, patch: Tree) -> Tree | None:
        await self.at("patch")
        found = self.objects.get((kind, name))
        if found is None:
            return None
        _check_version(found, patch["metadata"].get("resourceVersion"))
        stored = self.store(_over(found, patch))
        if stored["metadata"].get("deletionTimestamp") and not stored["metadata"].get("finalizers"):
            self.remove(kind, name)
        await self.at("patched")
        return copy.deepcopy(stored)

    def collect(self) -> None:
        """Kubernetes' garbage collector: Secrets of which no owner is there."""
        uids = {each["metadata"]["uid"] for each in self.objects.values()}
        for kind, name in list(self.objects):
            owners = self.objects[kind, name]["metadata"].get("ownerReferences")
            if kind == "Secret" and owners and not any(each["uid"] in uids for each in owners):
                self.remove(kind, name)

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str | None = None, grace_s: int | None = None
    ) -> None:
        await self.at("delete")
        found = self.objects.get((kind, name))
        if found is None or (uid is not None and found["metadata"]["uid"] != uid):
            return
        if kind == "ConfigMap" or (kind == "Pod" and grace_s == 0):
            self.remove(kind, name)
        else:
            self.store(_over(found, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        await self.at("deleted")

    # -- what is there ---------------------------------------------------------------------------------------------------

    def store(self, document: Tree) -> Tree:
        """Keep an object as an API server does."""
        self._version += 1
        stored = copy.deepcopy(document)
        metadata = stored["metadata"]
        before = self.objects.get((stored["kind"], metadata["name"]))
        metadata.setdefault("namespace", NAMESPACE)
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata.setdefault("creationTimestamp", self.clock())
        metadata["resourceVersion"] = str(self._version)
        changed = before is None or before.get("spec") != stored.get("spec")
        metadata["generation"] = (before or stored)["metadata"].get("generation", 0) + changed
        for key, value in stored.pop("stringData", {}).items():
            stored.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()
        self.objects[stored["kind"], metadata["name"]] = stored
        self._tell(stored, gone=False)
        return stored

    def remove(self, kind: str, name: str) -> None:
        """The object is gone."""
        self._tell(self.objects.pop((kind, name)), gone=True)

    def relist(self) -> None:
        """Watches are opened anew: everything that is there is seen again, and what is not there has been seen to go."""
        self.deaf = False
        vars(self.cache).update(vars(ObjectCache()))  # as a new process has it, at the place that others hold
        for stored in list(self.objects.values()):
            self._tell(stored, gone=False)

    def _tell(self, stored: Tree, *, gone: bool) -> None:
        if not self.deaf:
            for cache in self.caches:
                _deliver(cache, copy.deepcopy(stored), gone=gone)

    def new_cache(self) -> ObjectCache:
        """The cache of another replica, which watches too."""
        cache = ObjectCache()
        for stored in self.objects.values():
            _deliver(cache, copy.deepcopy(stored), gone=False)
        self.caches.append(cache)
        return cache


def _deliver(cache: ObjectCache, tree: Tree, *, gone: bool) -> None:
    """A watch event."""
    match tree["kind"]:
        case "StatefulSparkJob":
            cache.on_job_event(tree, gone=gone)
        case "StateSnapshot":
            cache.on_snapshot_event(tree, gone=gone)
        case "Pod":
            cache.on_pod_event(tree, gone=gone)
        case "Event" | "Secret":
            pass
        case _:
            cache.on_child_event(tree, gone=gone)


class MemoryDrivers:
    """The driver in the one pod: it runs when the pod is some ticks old, and does what it is asked."""

    def __init__(self, world: JobWorld) -> None:
        self._world = world
        self.operations: dict[str, Operation] = {}
        self.asked: list[tuple[str, str | None]] = []
        """URL and authority of each look."""
        self.parallelism = 1

    async def fetch(self, url: str, token: str, *, operations: bool, checkpoints: bool = False, authority: str | None = None) -> Driver:
        await self._world.cluster.at("fetch")
        self.asked.append((url, authority))
        now = self._world.now
        last = SnapshotInfo(id=1, path="s3://bucket/chk-1", completed_at=now + timedelta(seconds=2))
        return Driver(
            state="RUNNING" if self._world.pod_age >= 2 else "CREATED",
            attempt=1,
            batch=self._world.pod_age,
            parallelism=self.parallelism,
            max_parallelism=128,
            slots=tuple(Slot(slot=slot, first=0, last=0, state="RUNNING", executor=None) for slot in range(self.parallelism)),
            last_checkpoint=last,
            operations=dict(self.operations),
            retained=(last,) if checkpoints else None,
        )

    async def ask(self, url: str, token: str, kind: str, key: str, body: Any, timeout_s: int, *, authority: str | None = None) -> None:
        await self._world.cluster.at("ask")
        taken = SnapshotInfo(id=2, path="s3://bucket/chk-2", completed_at=self._world.now) if kind == "checkpoint" else None
        self.operations[key] = Operation(id=key[:200], state="SUCCEEDED", snapshot=taken)
        if kind == "rescale":
            self.parallelism = body["parallelism"]
        await self._world.cluster.at("asked")


class JobWorld:
    """One job under whole looks."""

    def __init__(
        self,
        spec: Any,
        *,
        status: Any = None,
        tenancy: Tenancy | None = None,
        job_api_from: tuple[Tree, ...] | None = None,
        key: bytes = b"k" * 32,
    ) -> None:
        self.now = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
        self.cluster = MemoryCluster()
        self.drivers = MemoryDrivers(self)
        self.pod_age = 0
        # In the place of those that talk to somebody.
        fake: Any = self.cluster
        drivers: Any = self.drivers
        self.context = ReconcileContext(
            cluster=fake,
            drivers=drivers,
            secrets=self._secrets(key),
            cache=self.cluster.cache,
            events=EventRecorder(fake),
            namespace_terminating=self.cluster.namespace_terminating,
            disruption_budgets="policy/v1",
            job_api_from=job_api_from,
            tenancy=tenancy or Tenancy(),
        )
        self.reconciler = Reconciler(self.context, may_act=lambda: True, resync=ResyncIntervals(), now=lambda: self.now)
        job = {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "counts", "namespace": NAMESPACE},
        }
        self.cluster.store(job | {"spec": spec} | ({"status": status} if status is not None else {}))

    @property
    def job(self) -> Tree | None:
        return self.cluster.objects.get(("StatefulSparkJob", "counts"))

    def _secrets(self, key: bytes) -> JobSecrets:
        fake: Any = self.cluster
        return JobSecrets(fake, OperatorKey(key), pause=self._pause)

    def restart_operator(self, key: bytes = b"k" * 32) -> None:
        """Another process continues, perhaps with another key."""
        vars(self.context.secrets).update(vars(self._secrets(key)))
        self.cluster.relist()

    async def _pause(self, seconds: float) -> None:
        """The garbage collector has its moment."""
        self.now += timedelta(seconds=seconds)
        self.cluster.collect()

    def change(self, spec: Any) -> None:
        """A person replaces the spec."""
        assert self.job is not None
        self.cluster.store({**self.job, "spec": spec})

    async def reconcile(self) -> float | None:
        """One look at the job and at each snapshot."""
        for kind, name in list(self.cluster.objects):
            if kind == "StateSnapshot":
                await self.reconciler.reconcile(("snapshot", NAMESPACE, name))
        return await self.reconciler.reconcile(("job", NAMESPACE, "counts"))

    def tick(self, seconds: float = 5.0) -> None:
        """Time passes, pods start and go."""
        self.now += timedelta(seconds=seconds)
        pod = self.cluster.objects.get(("Pod", "counts-driver"))
        if pod is None:
            return
        ended = any(key.startswith(("stop", "upgrade", "suspend", "rescale-")) for key in self.drivers.operations)
        if pod["metadata"].get("deletionTimestamp"):
            self.cluster.remove("Pod", "counts-driver")
            self.drivers.operations.clear()
            self.pod_age = 0
        elif (pod.get("status") or {}).get("phase") != "Running" and not ended:
            self.cluster.store({**pod, "status": {"phase": "Running", "podIP": "10.0.0.1"}})
            config = self.cluster.objects["ConfigMap", "counts-config"]["data"]["job.yaml"]
            self.drivers.parallelism = yaml.safe_load(config)["spec"]["parallelism"]
        else:
            self.pod_age += 1


def _check_version(found: Tree, wanted: str | None) -> None:
    """What an API server does with a version in a patch, also in one that is applied."""
    if wanted is not None and found["metadata"]["resourceVersion"] != wanted:
        raise ConflictError(f"{found['kind']} {found['metadata']['name']}: the object has been modified")


def _over(ground: Tree, over: Tree) -> Tree:
    result = dict(ground)
    for key, value in over.items():
        result[key] = _over(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else copy.deepcopy(value)
    return result
