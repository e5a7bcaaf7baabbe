"""The object cache (informer): jobs, pods and snapshots as the watches last delivered them, and which children other clients have changed."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from statefulspark_operator.api.names import COMPONENT_DRIVER, COMPONENT_STORAGE, LABEL_COMPONENT, LABEL_JOB, LABEL_OWNS, LABEL_TRIGGER_TYPE
from statefulspark_operator.api.snapshots import SnapshotTrigger
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.job.observe.pod_status import relevant_part

Key = tuple[str, str]
"""Namespace and name of a job."""

_KEPT: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A child as the operator applied it last."""

    job: Key
    digest: str
    """Of the document that was sent."""
    version: str
    """Of the object that came of it."""


class ObjectCache:
    """Cache of watched objects. Watch handlers write it, reconcilers read it, all in one thread."""

    def __init__(self) -> None:
        self._jobs: dict[Key, Tree] = {}
        self._pods: defaultdict[Key, dict[str, Tree]] = defaultdict(dict)
        self._snapshots: defaultdict[Key, dict[str, Tree]] = defaultdict(dict)
        self._all_snapshots: dict[tuple[str, str], Tree] = {}
        self._children: dict[tuple[str, str, str], str] = {}
        self._made: dict[tuple[str, str, str], _Made] = {}
        self._written: defaultdict[Key, list[str]] = defaultdict(list)
        """Resource versions that the operator has written and the watch has not delivered yet, oldest first."""
        self._last_writes: dict[Key, Tree] = {}
        self._fresh: set[Key] = set()
        self._foreign_changes: set[Key] = set()
        self._known: set[Key] = set()

    # -- watch events ------------------------------------------------------------------------------------------------------

    def on_job_event(self, tree: Tree, *, gone: bool) -> Key | None:
        """Handles an event for a job. Returns its key unless only the status changed, which the operator itself writes."""
        key = (tree["metadata"]["namespace"], tree["metadata"]["name"])
        before = self._jobs.get(key)
        if gone:
            self._jobs.pop(key, None)
            self._known.discard(key)
            self._foreign_changes.discard(key)
            self._written.pop(key, None)
            self._last_writes.pop(key, None)
            self._fresh.discard(key)
            for child in [child for child, made in self._made.items() if made.job == key]:
                del self._made[child]
                self._children.pop(child, None)
        else:
            self._jobs[key] = _trimmed(tree)
            self._observe_version(key, tree["metadata"]["resourceVersion"])
            if before is not None and _desired(before) == _desired(tree):
                return None
        return key

    def on_pod_event(self, tree: Tree, *, gone: bool) -> Key | None:
        """Handles an event for a pod. Returns the owning job."""
        return _keep(self._pods, relevant_part(tree), tree["metadata"].get("labels", {}).get(LABEL_JOB), gone=gone)

    def on_snapshot_event(self, tree: Tree, *, gone: bool) -> Key | None:
        """Handles an event for a snapshot. Returns its job, unless the snapshot lists a retained checkpoint, which the operator itself creates."""
        name = (tree["metadata"]["namespace"], tree["metadata"]["name"])
        tree = _trimmed(tree)
        if gone:
            self._all_snapshots.pop(name, None)
        else:
            self._all_snapshots[name] = tree
        reference = (tree.get("spec") or {}).get("jobReference")
        job = reference.get("name") if isinstance(reference, dict) else None
        key = _keep(self._snapshots, tree, job if isinstance(job, str) else None, gone=gone)
        listed = (tree["metadata"].get("labels") or {}).get(LABEL_TRIGGER_TYPE) == SnapshotTrigger.JOB.value
        return None if listed else key

    def on_child_event(self, tree: Tree, *, gone: bool) -> Key | None:
        """Handles an event for a child object. Returns the owning job if someone else made the change."""
        labels = tree["metadata"].get("labels", {})
        name = labels.get(LABEL_JOB)
        if name is None:
            return None
        if LABEL_OWNS in labels and not (gone and tree.get("data")):
            return None  # the operator makes and removes these until their Secret is made
        job = (tree["metadata"]["namespace"], name)
        child = _child(tree)
        if gone:
            self._children.pop(child, None)
        elif self._children.get(child) == _version(tree):
            return None
        else:
            self._children[child] = _version(tree)
        self._foreign_changes.add(job)
        return job

    def record_write(self, tree: Tree) -> None:
        """Records a job as written or read by the operator. The watched state counts as current once the watch has delivered this version."""
        key, version = (tree["metadata"]["namespace"], tree["metadata"]["name"]), tree["metadata"]["resourceVersion"]
        if tree["metadata"].get("deletionTimestamp") and not tree["metadata"].get("finalizers"):
            self._fresh.discard(key)  # deleted by this write; the watch may have delivered that already
            return
        known = self._jobs.get(key)
        if known is not None and known["metadata"]["resourceVersion"] == version:
            # The write changed nothing, or the watch was faster than the response.
            self._written.pop(key, None)
            self._last_writes.pop(key, None)
            self._fresh.add(key)
            return
        self._written[key].append(version)
        self._last_writes[key] = _trimmed(tree)
        self._fresh.discard(key)

    def _observe_version(self, key: Key, version: str) -> None:
        """Records a version delivered by the watch. Resource versions are opaque, but events arrive in order."""
        written = self._written.get(key, [])
        if version in written:
            del written[: written.index(version) + 1]
            if not written:
                self._last_writes.pop(key, None)
                self._fresh.add(key)
        elif written:
            # Another client's write, before or after the operator's: only a read tells which.
            written.clear()
            self._last_writes.pop(key, None)
            self._fresh.discard(key)

    def list_objects(self, kind: str, namespace: str | None) -> list[Tree]:
        """All cached jobs, snapshots or pods, by kind, of one namespace or of all."""
        found: list[Tree]
        match kind:
            case "StatefulSparkJob":
                found = list(self._jobs.values())
            case "StateSnapshot":
                found = list(self._all_snapshots.values())
            case _:
                found = [tree for pods in self._pods.values() for tree in pods.values()]
        return [tree for tree in found if namespace in (None, tree["metadata"]["namespace"])]

    def invalidate_children(self, namespace: str | None) -> None:
        """Marks the children in a namespace as unknown after missed events; they are applied again."""
        for job in [job for job in self._known if namespace in (None, job[0])]:
            self._known.discard(job)

    def invalidate_writes(self) -> None:
        """Discards what the operator knows of its own writes; another replica may have written since."""
        self._fresh.clear()
        self._last_writes.clear()
        self._written.clear()

    def invalidate_job(self, namespace: str, name: str) -> None:
        """Discards what the operator knows of its own writes to one job, so that the job is read again: it has been changed by another client."""
        key = (namespace, name)
        self._fresh.discard(key)
        self._last_writes.pop(key, None)
        self._written.pop(key, None)

    def is_up_to_date(self, document: Tree) -> bool:
        """True if the live child still matches ``document``."""
        made = self._made.get(_child(document))
        return made is not None and made.digest == _digest(document) and made.version == self.child_version(document)

    def child_version(self, document: Tree) -> str | None:
        """The latest known version of a child, from the watch or an apply; None if it is not known to exist."""
        return self._children.get(_child(document))

    def record_apply(self, document: Tree, tree: Tree, before: str | None) -> bool:
        """Records that the operator has applied ``document``, which gave ``tree``.

        Args:
            document: As it was sent.
            tree: As the API server has it now.
            before: `child_version` from before the request. The watch may deliver ``tree`` before the response of the request arrives.

        Returns:
            True if that undid a change by someone else. The first apply of a document by this process never counts: it may differ because
            this operator is another release than the one that applied it last.
        """
        child, version, digest = _child(tree), _version(tree), _digest(document)
        job = (tree["metadata"]["namespace"], tree["metadata"]["labels"][LABEL_JOB])
        made = self._made.get(child)
        repaired = made is not None and made.digest == digest and version not in (made.version, before)
        self._made[child] = _Made(job=job, digest=digest, version=version)
        self._children[child] = version
        self._foreign_changes.discard(job)
        self._known.add(job)
        return repaired

    # -- reads -------------------------------------------------------------------------------------------------------------

    def jobs(self) -> Iterator[Key]:
        """All jobs."""
        yield from list(self._jobs)

    def all_snapshots(self) -> Iterator[Key]:
        """Namespace and name of all snapshots."""
        yield from list(self._all_snapshots)

    def job(self, namespace: str, name: str) -> Tree | None:
        """The job's object."""
        return self._jobs.get((namespace, name))

    def current_job(self, namespace: str, name: str) -> Tree | None:
        """The job's object if the cache includes all writes of this replica; otherwise None, and the object must be read."""
        key = (namespace, name)
        return self._jobs.get(key) if key in self._fresh else self._last_writes.get(key)

    def driver_pod(self, namespace: str, name: str) -> Tree | None:
        """The pod of the driver of job ``name``."""
        pod = JobIdentity(name=name, namespace=namespace, uid="", generation=0).driver
        return self._pods.get((namespace, name), {}).get(pod)

    def executor_pods(self, namespace: str, name: str) -> list[Tree]:
        """Pods of the executors of job ``name``."""
        found = self._pods.get((namespace, name), {}).values()
        return [pod for pod in found if _component(pod) not in {COMPONENT_DRIVER, COMPONENT_STORAGE}]

    def storage_pod(self, namespace: str, name: str, pod: str) -> Tree | None:
        """One of the pods that open the storage of job ``name``."""
        found = self._pods.get((namespace, name), {}).get(pod)
        return found if found is not None and _component(found) == COMPONENT_STORAGE else None

    def storage_pods(self, namespace: str) -> int:
        """Number of pods in a namespace that open storage."""
        jobs = [pods for (where, _), pods in self._pods.items() if where == namespace]
        return sum(_component(pod) == COMPONENT_STORAGE for pods in jobs for pod in pods.values())

    def snapshots(self, namespace: str, name: str) -> list[Tree]:
        """StateSnapshots of job ``name``."""
        return list(self._snapshots.get((namespace, name), {}).values())

    def snapshot(self, namespace: str, name: str) -> Tree | None:
        """One StateSnapshot, of any job."""
        return self._all_snapshots.get((namespace, name))

    def children_intact(self, namespace: str, name: str) -> bool:
        """True if no other client has deleted or changed a child of job ``name`` since the operator applied it."""
        return (namespace, name) in self._known and (namespace, name) not in self._foreign_changes


def _component(pod: Tree) -> str | None:
    component: str | None = (pod["metadata"].get("labels") or {}).get(LABEL_COMPONENT)
    return component


def _keep(kept: defaultdict[Key, dict[str, Tree]], tree: Tree, job: str | None, *, gone: bool) -> Key | None:
    if job is None:
        return None
    metadata = tree["metadata"]
    key = (metadata["namespace"], job)
    if gone:
        kept[key].pop(metadata["name"], None)
        if not kept[key]:
            del kept[key]
    else:
        kept[key][metadata["name"]] = tree
    return key


def _trimmed(tree: Tree) -> Tree:
    """Drops managed fields, which make up about half of a typical object."""
    slim: Tree = {name: tree[name] for name in _KEPT if name in tree}
    metadata = slim["metadata"] = {name: value for name, value in tree["metadata"].items() if name != "managedFields"}
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != _LAST_APPLIED}
    return slim


def _desired(tree: Tree) -> tuple[object, ...]:
    """The parts of an object that users and other clients change: everything except the status and server-side counters."""
    metadata = tree["metadata"]
    return tuple(metadata.get(name) for name in ("uid", "generation", "deletionTimestamp", "finalizers", "labels"))


def _child(tree: Tree) -> tuple[str, str, str]:
    metadata = tree["metadata"]
    return str(tree.get("kind", "")), metadata["namespace"], metadata["name"]


def _digest(document: Tree) -> str:
    """Hash of a document as applied; keeping whole documents would take too much memory."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _version(tree: Tree) -> str:
    """Changes whenever the object is changed: the generation where it has one, since the status changes all the time."""
    metadata = tree["metadata"]
    generation = metadata.get("generation")
    return f"{metadata['uid']}/{generation if generation is not None else metadata['resourceVersion']}"
