"""Storage pods: short-lived pods that access a job's storage with the job's identity, image and volumes, never with the operator's.

One pod per command. Its name follows from the StateSnapshot and the command, so that every replica finds it. Both commands are idempotent: an
operator that terminates between the report and the status update runs the command again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import structlog

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.names import API_VERSION, SNAPSHOT_KIND
from statefulspark_operator.api.responses import StorageReport
from statefulspark_operator.builders import children
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.builders.pods import storage_pod
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.job.observe import pod_status
from statefulspark_operator.reconcile.snapshot.plan import StorageCommand

_log = structlog.get_logger("statefulspark.operator.storage")
_AT_ONCE: Final = 4
"""Maximum number of concurrent storage pods per namespace; others wait."""


class StoragePods:
    """Starts storage pods and reads their reports.

    Args:
        context: Clients, cache and settings.
    """

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context
        self._cache = context.cache

    def report(self, snapshot: Tree, spec: StateSnapshotSpec, command: StorageCommand, now: datetime) -> StorageReport | Failure | None:
        """The report of the storage pod for ``command``; None while there is none."""
        name = _name(snapshot, command)
        pod = self._cache.storage_pod(snapshot["metadata"]["namespace"], spec.job_reference.name, name)
        return pod_status.storage_report(pod, now)

    async def start(self, snapshot: Tree, job: Tree, spec: StatefulSparkJobSpec, command: StorageCommand, path: str | None) -> None:
        """Starts the storage pod for ``command``, unless it exists or the namespace has too many."""
        namespace, name = snapshot["metadata"]["namespace"], _name(snapshot, command)
        image = self._context.image(spec)
        if path is None or image is None or self._cache.storage_pod(namespace, job["metadata"]["name"], name) is not None:
            return
        if self._cache.storage_pods(namespace) >= _AT_ONCE:
            _log.debug("limit of storage pods per namespace reached", namespace=namespace, snapshot=snapshot["metadata"]["name"])
            return
        identity = JobIdentity(
            name=job["metadata"]["name"], namespace=namespace, uid=job["metadata"]["uid"], generation=job["metadata"].get("generation", 0)
        )
        if spec.service_account is None:
            # A job that has never run has none yet.
            await self._context.cluster.create(children.service_account(identity))
        pod = storage_pod(
            identity,
            spec,
            name=name,
            owner=_reference(snapshot),
            command=(command, path),
            image=image,
            account=spec.service_account or identity.account,
        )
        if await self._context.cluster.create(pod):
            _log.info("created storage pod", namespace=namespace, pod=name, command=command)

    def exist(self, snapshot: Tree) -> bool:
        """True if the snapshot has storage pods that are not being deleted."""
        return bool(self._names(snapshot))

    async def delete(self, snapshot: Tree) -> None:
        """Deletes the snapshot's storage pods."""
        for name in self._names(snapshot):
            await self._context.cluster.delete("v1", "Pod", snapshot["metadata"]["namespace"], name)

    def _names(self, snapshot: Tree) -> list[str]:
        """Names of the snapshot's storage pods that are not being deleted."""
        commands: tuple[StorageCommand, ...] = ("describe", "dispose")
        reference = (snapshot.get("spec") or {}).get("jobReference")
        job = reference.get("name") if isinstance(reference, dict) else None
        if not isinstance(job, str):
            return []  # an invalid spec, for which none is started
        names = [_name(snapshot, command) for command in commands]
        pods = {name: self._cache.storage_pod(snapshot["metadata"]["namespace"], job, name) for name in names}
        return [name for name, pod in pods.items() if pod is not None and pod["metadata"].get("deletionTimestamp") is None]


def _name(snapshot: Tree, command: StorageCommand) -> str:
    metadata = snapshot["metadata"]
    return f"{metadata['name'][:200]}-{command}-{metadata['uid'][:8]}"


def _reference(snapshot: Tree) -> dict[str, Any]:
    metadata = snapshot["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": SNAPSHOT_KIND,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
