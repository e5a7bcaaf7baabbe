"""Observes one StateSnapshot: its object, its job, the driver, and what a storage pod found. Reads only."""

from __future__ import annotations

from datetime import datetime

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark.errors import InvalidInputError
from statefulspark_operator.api.drivers import Driver, Failure
from statefulspark_operator.api.names import FINALIZER, LABEL_SNAPSHOT_STATE
from statefulspark_operator.api.snapshots import SnapshotState, StateSnapshotStatus
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.job.observe import pod_status
from statefulspark_operator.reconcile.job.observe.observation import DriverPod
from statefulspark_operator.reconcile.job.observe.observer import query_driver
from statefulspark_operator.reconcile.ownership import spoofed
from statefulspark_operator.reconcile.snapshot.plan import (
    SnapshotObservation,
    StorageCommand,
    existing_path,
    wants_disposal,
)
from statefulspark_operator.reconcile.snapshot.storage_pods import StoragePods
from statefulspark_operator.reconcile.specs import checked_snapshot_spec
from statefulspark_operator.reconcile.state_backends import with_state_backend


async def observe(context: ReconcileContext, storage_pods: StoragePods, tree: Tree, now: datetime) -> SnapshotObservation:
    """Gathers what planning needs to know about a snapshot."""
    metadata = tree["metadata"]
    spec, problem = checked_snapshot_spec(tree)
    status = StateSnapshotStatus.read(tree.get("status"))
    job = context.cache.job(metadata["namespace"], spec.job_reference.name) if spec is not None else None
    deleting = metadata.get("deletionTimestamp")
    existing = spec is not None and existing_path(spec) is not None
    command: StorageCommand | None = None
    if deleting is not None:
        command = "dispose" if wants_disposal(spec, status) is not None else None
    elif existing and status.state is SnapshotState.TRIGGER_PENDING:
        command = "describe"
    return SnapshotObservation(
        now=now,
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        deleting=deleting is not None,
        deleted_at=datetime.fromisoformat(deleting) if deleting is not None else None,
        has_finalizer=FINALIZER in (metadata.get("finalizers") or ()),
        awaits_creator=(metadata.get("labels") or {}).get(LABEL_SNAPSHOT_STATE) == SnapshotState.COMPLETED and not tree.get("status"),
        spec=spec,
        problem=problem,
        status=status,
        job_exists=job is not None,
        job_deleting=job is not None and job["metadata"].get("deletionTimestamp") is not None,
        driver=await _driver(context, job) if job is not None and not existing else None,
        refused=_refused(context, metadata["namespace"], spec, job) if spec is not None and not existing else None,
        unreachable=await _unreachable(context, metadata["namespace"], spec, status, job)
        if spec is not None and command is not None
        else None,
        report=storage_pods.report(tree, spec, command, now) if spec is not None and command is not None else None,
    )


def _refused(context: ReconcileContext, namespace: str, spec: StateSnapshotSpec, job: Tree | None) -> Failure | None:
    """Reason for which a savepoint must not be written to its path: a user who can create snapshots must not be able to use the job's identity for any location."""
    path, job_spec = spec.savepoint.path if spec.savepoint is not None else None, checked_job_spec(context, job)
    if path is None or job_spec is None:
        return None
    tenancy = context.tenancy
    if tenancy.snapshot_problem(namespace, spec) is None and tenancy.may_change(namespace, job_spec, path):
        return None
    return Failure(
        reason="TargetNotAllowed",
        message=f"spec.savepoint.path: {path} is neither below the job's checkpointing.savepointDir or dir nor allowed by the operator's"
        " snapshotLocations. Remove the field, or choose a directory below one of these",
    )


async def _unreachable(
    context: ReconcileContext, namespace: str, spec: StateSnapshotSpec, status: StateSnapshotStatus, job: Tree | None
) -> Failure | None:
    job_spec, tenancy = checked_job_spec(context, job), context.tenancy
    if job is None or job_spec is None:
        return Failure(reason="JobGone", message="the job no longer exists or its spec is invalid, so its storage settings are unknown")
    if await context.namespace_terminating(namespace):
        return Failure(reason="NamespaceTerminating", message="the namespace is being deleted, so no storage pod can be started in it")
    if context.image(job_spec) is None:
        return Failure(reason="NoImage", message="spec.image of the job is not set, so no storage pod can be started")
    if job_spec.service_account is None and not context.creates_service_accounts:
        return Failure(reason="NoServiceAccount", message="spec.serviceAccount of the job is not set, so no storage pod can be started")
    problem = tenancy.job_problem(namespace, job_spec) or tenancy.snapshot_problem(namespace, spec)
    if problem is not None:
        return Failure(reason="NotAllowed", message=problem)
    path = wants_disposal(spec, status)
    # The driver was asked for a path where it was allowed to write.
    if path is not None and existing_path(spec) is not None and not tenancy.may_change(namespace, job_spec, path):
        return Failure(
            reason="NotAllowed",
            message="the savepoint is neither below the job's own directories nor allowed by the operator's snapshotLocations. Delete it manually",
        )
    return None


async def _driver(context: ReconcileContext, job: Tree) -> Driver | None:
    return await query_driver(context, job, driver_pod_of(context, job), operations=True)


def driver_pod_of(context: ReconcileContext, job: Tree) -> DriverPod | None:
    """The pod of the job's driver; None if there is none that the job owns."""
    pod = context.cache.driver_pod(job["metadata"]["namespace"], job["metadata"]["name"])
    return pod_status.driver_pod(pod if not spoofed(pod, job) else None)


def checked_job_spec(context: ReconcileContext, job: Tree | None) -> StatefulSparkJobSpec | None:
    """The spec of a job; None if the job does not exist or its spec is invalid."""
    if job is None:
        return None
    try:
        return validate_on_kubernetes(with_state_backend(job, context.default_state_backend)).spec
    except InvalidInputError:
        return None
