"""Observes a job: gathers its object, pods, driver and snapshots into an `Observation`. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import structlog

from statefulspark.config.job import DesiredState, StatefulSparkJobSpec
from statefulspark.errors import StatefulSparkError
from statefulspark_operator.api.drivers import Driver
from statefulspark_operator.api.jobs import StatefulSparkJobStatus
from statefulspark_operator.api.names import FINALIZER, LABEL_TRIGGER_TYPE
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType, StateSnapshotStatus
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.job.observe import kept_checkpoints, pod_status
from statefulspark_operator.reconcile.job.observe.driver_endpoint import driver_endpoint
from statefulspark_operator.reconcile.job.observe.executor_check import refused_executor
from statefulspark_operator.reconcile.job.observe.observation import DriverPod, Observation, ObservedSnapshot
from statefulspark_operator.reconcile.ownership import spoofed
from statefulspark_operator.reconcile.specs import checked_spec

_log = structlog.get_logger("statefulspark.operator.observe")


async def observe(context: ReconcileContext, job: Tree, now: datetime) -> Observation:
    """Observes ``job``. An unresponsive driver is part of the observation, not an error."""
    metadata = job["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    spec, problem = _checked(context, job)
    status = StatefulSparkJobStatus.read(job.get("status"))
    found = context.cache.driver_pod(namespace, name)
    pod = pod_status.driver_pod(found if not spoofed(found, job) else None)
    asked = status.transition is not None or metadata.get("deletionTimestamp") is not None
    snapshots = tuple(_snapshot(tree) for tree in context.cache.snapshots(namespace, name))
    listing = kept_checkpoints.needs_listing(spec, status, snapshots, now)
    driver = await query_driver(context, job, pod, operations=asked, checkpoints=listing)
    initial = _initial(context, namespace, spec)
    executor_pods = context.cache.executor_pods(namespace, name)
    running, lost, trouble = pod_status.executors(executor_pods)
    identity = JobIdentity(name=name, namespace=namespace, uid=metadata["uid"], generation=metadata.get("generation", 0))
    return Observation(
        now=now,
        name=name,
        namespace=namespace,
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        deleting=metadata.get("deletionTimestamp") is not None,
        has_finalizer=FINALIZER in (metadata.get("finalizers") or ()),
        spec=spec,
        problem=problem,
        status=status,
        pod=pod,
        driver=driver,
        executors=running,
        executor_trouble=trouble
        or await refused_executor(context, identity, spec=_started_spec(status) or spec, pod=pod, driver=driver, running=running, now=now),
        out_of_memory=lost,
        dead_executors=pod_status.dead_executors(executor_pods, pod),
        snapshots=snapshots,
        initial=initial,
        initial_problem=_initial_problem(context, namespace, initial),
        name_conflict=context.name_conflicts.get(metadata["uid"]),
        kept_paths=kept_checkpoints.kept_paths(status, pod, driver),
        refusal=context.refusals.get(metadata["uid"]),
        secrets_due=pod is not None and context.secrets.due(metadata["uid"], now),
        other_key=pod is not None and not pod.over and pod.key_id != context.secrets.key_id,
        children_intact=context.cache.children_intact(namespace, name),
    )


def _started_spec(status: StatefulSparkJobStatus) -> StatefulSparkJobSpec | None:
    """The spec that the driver was created from."""
    return checked_spec(status.reconciliation.last_reconciled_spec) if status.reconciliation is not None else None


def _checked(context: ReconcileContext, job: Mapping[str, Any]) -> tuple[StatefulSparkJobSpec | None, str | None]:
    """The spec, or the reason why it is invalid, by itself or under this operator's settings."""
    spec, problem = context.specs.check(job, context.default_state_backend)
    if spec is None:
        return None, problem
    if (refused := context.tenancy.job_problem(job["metadata"]["namespace"], spec)) is not None:
        return None, refused
    if spec.state is DesiredState.RUNNING:
        if spec.image is None and context.default_image is None:
            return None, "spec.image: not set, and this operator has no default image. Set the image of the job"
        if spec.service_account is None and not context.creates_service_accounts:
            return (
                None,
                "spec.serviceAccount: not set, and this operator does not create service accounts. Set the service account of the driver",
            )
    return spec, None


async def query_driver(
    context: ReconcileContext, job: Tree, pod: DriverPod | None, *, operations: bool, checkpoints: bool = False
) -> Driver | None:
    """The state of the driver in ``pod``, with ``operations`` also its operations; None if it does not respond."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    try:
        endpoint = driver_endpoint(context.secrets, name, job["metadata"]["uid"], pod)
        if endpoint is None:
            return None
        return await context.drivers.fetch(
            endpoint.url, endpoint.token, authority=endpoint.authority, operations=operations, checkpoints=checkpoints
        )
    except StatefulSparkError as error:
        _log.debug("driver does not respond", job=name, namespace=namespace, error=str(error)[:200])
        return None


def _initial(context: ReconcileContext, namespace: str, spec: StatefulSparkJobSpec | None) -> ObservedSnapshot | None:
    if spec is None or spec.initial_snapshot is None:
        return None
    tree = context.cache.snapshot(namespace, spec.initial_snapshot.name)
    return _snapshot(tree) if tree is not None else None


def _initial_problem(context: ReconcileContext, namespace: str, initial: ObservedSnapshot | None) -> str | None:
    if initial is None or initial.path is None:
        return None
    return context.tenancy.initial_problem(namespace, initial.name, initial.path)


def _snapshot(tree: Tree) -> ObservedSnapshot:
    metadata = tree["metadata"]
    status = StateSnapshotStatus.read(tree.get("status"))
    labels = metadata.get("labels") or {}
    trigger = labels.get(LABEL_TRIGGER_TYPE, SnapshotTrigger.MANUAL)
    spec = tree.get("spec") or {}
    return ObservedSnapshot(
        name=metadata["name"],
        trigger=SnapshotTrigger(trigger) if trigger in set(SnapshotTrigger) else SnapshotTrigger.MANUAL,
        type=SnapshotType.CHECKPOINT if "checkpoint" in spec else SnapshotType.SAVEPOINT,
        state=SnapshotState(status.state),
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        path=status.path,
        checkpoint_id=status.checkpoint_id,
        max_parallelism=status.max_parallelism,
        deleting=metadata.get("deletionTimestamp") is not None,
        error=status.error,
    )
