"""What watching has brought: jobs, pods and snapshots as they were last seen, and which children somebody else has touched."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from statefulspark_operator.api.names import COMPONENT_DRIVER, LABEL_COMPONENT, LABEL_JOB, LABEL_TRIGGER_TYPE
from statefulspark_operator.api.snapshots import SnapshotTrigger
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.clients.kubernetes import Tree

Key = tuple[str, str]
"""Namespace and name of a job."""

_KEPT: Final = ("apiVersion", "kind", "metadata", "spec", "status")


class Mirror:
    """Written by watch handlers, read by observations; all in one thread."""

    def __init__(self) -> None:
        self._jobs: dict[Key, Tree] = {}
        self._pods: defaultdict[Key, dict[str, Tree]] = defaultdict(dict)
        self._snapshots: defaultdict[Key, dict[str, Tree]] = defaultdict(dict)
        self._all_snapshots: dict[tuple[str, str], Tree] = {}
        self._children: dict[tuple[str, str, str], str] = {}
        self._made: dict[tuple[str, str, str], str] = {}
        self._written: defaultdict[Key, list[str]] = defaultdict(list)
        """Versions that the operator has written and watching has not brought yet, oldest first."""
        self._ahead: dict[Key, Tree] = {}
        self._fresh: set[Key] = set()
        self._touched: set[Key] = set()
        self._known: set[Key] = set()

    # -- what watching brings --------------------------------------------------------------------------------------------

    def saw_job(self, tree: Tree, *, gone: bool) -> Key | None:
        """A job was added, changed or (``gone``) removed; returns it unless only its status has changed, which is the operator's own doing."""
        key = (tree["metadata"]["namespace"], tree["metadata"]["name"])
        before = self._jobs.get(key)
        if gone:
            self._jobs.pop(key, None)
            self._known.discard(key)
            self._touched.discard(key)
            self._written.pop(key, None)
            self._ahead.pop(key, None)
            self._fresh.discard(key)
        else:
            self._jobs[key] = _slim(tree)
            self._compare(key, tree["metadata"]["resourceVersion"])
            if before is not None and _asked(before) == _asked(tree):
                return None
        return key

    def saw_pod(self, tree: Tree, *, gone: bool) -> Key | None:
        """A pod of a job was added, changed or removed."""
        return _keep(self._pods, tree, tree["metadata"].get("labels", {}).get(LABEL_JOB), gone=gone)

    def saw_snapshot(self, tree: Tree, *, gone: bool) -> Key | None:
        """A snapshot of a job was added, changed or removed; returns the job unless it was the operator's doing for a kept checkpoint."""
        name = (tree["metadata"]["namespace"], tree["metadata"]["name"])
        if gone:
            self._all_snapshots.pop(name, None)
        else:
            self._all_snapshots[name] = _slim(tree)
        reference = (tree.get("spec") or {}).get("jobReference")
        job = reference.get("name") if isinstance(reference, dict) else None
        key = _keep(self._snapshots, tree, job if isinstance(job, str) else None, gone=gone)
        listed = (tree["metadata"].get("labels") or {}).get(LABEL_TRIGGER_TYPE) == SnapshotTrigger.JOB.value
        return None if listed else key

    def saw_child(self, tree: Tree, *, gone: bool) -> Key | None:
        """Another child of a job was added, changed or removed; returns the job when it was not by us."""
        name = tree["metadata"].get("labels", {}).get(LABEL_JOB)
        if name is None:
            return None
        job = (tree["metadata"]["namespace"], name)
        child = _child(tree)
        if not gone and self._children.get(child) == _version(tree):
            return None
        if gone:
            self._children.pop(child, None)
        self._made.pop(child, None)
        self._touched.add(job)
        return job

    def wrote(self, tree: Tree) -> None:
        """The operator has written a job, or read it; what watching brings counts as its present state when it has brought this."""
        key, version = (tree["metadata"]["namespace"], tree["metadata"]["name"]), tree["metadata"]["resourceVersion"]
        if tree["metadata"].get("deletionTimestamp") and not tree["metadata"].get("finalizers"):
            self._fresh.discard(key)  # gone with this write, and watching may have said so already
            return
        known = self._jobs.get(key)
        if known is not None and known["metadata"]["resourceVersion"] == version:
            # Nothing has changed by it, or watching was quicker.
            self._written.pop(key, None)
            self._ahead.pop(key, None)
            self._fresh.add(key)
            return
        self._written[key].append(version)
        self._ahead[key] = _slim(tree)
        self._fresh.discard(key)

    def _compare(self, key: Key, version: str) -> None:
        """Watching has brought a version; versions have no order, but come in order."""
        written = self._written[key]
        if version in written:
            del written[: written.index(version) + 1]
            if not written:
                self._ahead.pop(key, None)
                self._fresh.add(key)
        elif written:
            # Somebody else's, before or after what was written: only reading tells.
            written.clear()
            self._ahead.pop(key, None)
            self._fresh.discard(key)

    def doubt_all(self) -> None:
        """Another replica may have written."""
        self._fresh.clear()
        self._ahead.clear()
        self._written.clear()

    def made(self, document: Tree) -> bool:
        """Whether a child is as ``document`` says: the operator has applied just that, and nobody has touched it since."""
        return self._made.get(_child(document)) == _digest(document)

    def applied(self, document: Tree, tree: Tree) -> bool:
        """The operator has applied ``document``, which gave ``tree``; True when that changed it, compared with what was applied or seen before."""
        self._made[_child(document)] = _digest(document)
        child, version = _child(tree), _version(tree)
        changed = self._children.get(child) != version
        self._children[child] = version
        job = (tree["metadata"]["namespace"], tree["metadata"]["labels"][LABEL_JOB])
        self._touched.discard(job)
        self._known.add(job)
        return changed

    # -- what observations read ------------------------------------------------------------------------------------------

    def jobs(self) -> Iterator[Key]:
        """All jobs."""
        yield from list(self._jobs)

    def all_snapshots(self) -> Iterator[Key]:
        """Namespace and name of all snapshots."""
        yield from list(self._all_snapshots)

    def job(self, namespace: str, name: str) -> Tree | None:
        """The job's object."""
        return self._jobs.get((namespace, name))

    def present_job(self, namespace: str, name: str) -> Tree | None:
        """The job's object, if what is known holds all that this replica has written into it; else None, and it must be read."""
        key = (namespace, name)
        return self._jobs.get(key) if key in self._fresh else self._ahead.get(key)

    def driver_pod(self, namespace: str, name: str) -> Tree | None:
        """The pod of the driver of job ``name``."""
        pod = JobIdentity(name=name, namespace=namespace, uid="", generation=0).driver
        return self._pods[namespace, name].get(pod)

    def executor_pods(self, namespace: str, name: str) -> list[Tree]:
        """Pods of the executors of job ``name``."""
        found = self._pods[namespace, name].values()
        return [pod for pod in found if pod["metadata"].get("labels", {}).get(LABEL_COMPONENT) != COMPONENT_DRIVER]

    def snapshots(self, namespace: str, name: str) -> list[Tree]:
        """StateSnapshots of job ``name``."""
        return list(self._snapshots[namespace, name].values())

    def snapshot(self, namespace: str, name: str) -> Tree | None:
        """One StateSnapshot, of whatever job."""
        return self._all_snapshots.get((namespace, name))

    def children_intact(self, namespace: str, name: str) -> bool:
        """Whether no child of job ``name`` was deleted or changed by others since this operator applied it."""
        return (namespace, name) in self._known and (namespace, name) not in self._touched


def _keep(kept: defaultdict[Key, dict[str, Tree]], tree: Tree, job: str | None, *, gone: bool) -> Key | None:
    if job is None:
        return None
    metadata = tree["metadata"]
    key = (metadata["namespace"], job)
    if gone:
        kept[key].pop(metadata["name"], None)
    else:
        kept[key][metadata["name"]] = _slim(tree)
    return key


def _slim(tree: Tree) -> Tree:
    """Without what nobody reads, which is half of an object."""
    slim: Tree = {name: tree[name] for name in _KEPT if name in tree}
    slim["metadata"] = {name: value for name, value in tree["metadata"].items() if name != "managedFields"}
    return slim


def _asked(tree: Tree) -> tuple[object, ...]:
    """What people and other programs say of an object: all but its status and what the API server counts."""
    metadata = tree["metadata"]
    return tuple(metadata.get(name) for name in ("uid", "generation", "deletionTimestamp", "finalizers", "labels"))


def _child(tree: Tree) -> tuple[str, str, str]:
    metadata = tree["metadata"]
    return str(tree.get("kind", "")), metadata["namespace"], metadata["name"]


def _digest(document: Tree) -> str:
    """Of a document as it is applied; many are large, and there are several for each job."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _version(tree: Tree) -> str:
    """What changes when somebody changes the object: its generation where it has one, since a status changes all the time."""
    metadata = tree["metadata"]
    generation = metadata.get("generation")
    return f"{metadata['uid']}/{generation if generation is not None else metadata['resourceVersion']}"
