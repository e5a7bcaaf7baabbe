"""Carries out the plan for a StateSnapshot: status and labels first, then events and requests.

Every write is bound to the version of the object that the plan was made from, or to the one that the previous write returned. If another
reconciliation has written in between (the job's completes the objects of retained checkpoints), the API server refuses with a conflict, and
the work queue plans again.
"""

from __future__ import annotations

import structlog

from statefulspark.errors import ConflictError
from statefulspark_operator.api.names import (
    API_VERSION,
    FINALIZER,
    LABEL_JOB,
    LABEL_SNAPSHOT_STATE,
    LABEL_SNAPSHOT_TYPE,
    LABEL_TRIGGER_TYPE,
    SNAPSHOT_KIND,
)
from statefulspark_operator.api.snapshots import SnapshotTrigger, SnapshotType
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.job.observe.driver_endpoint import driver_endpoint
from statefulspark_operator.reconcile.snapshot.observe import checked_job_spec, driver_pod_of
from statefulspark_operator.reconcile.snapshot.plan import (
    SnapshotObservation,
    SnapshotPlan,
    existing_path,
)
from statefulspark_operator.reconcile.snapshot.storage_pods import StoragePods

_log = structlog.get_logger("statefulspark.operator.snapshots")


async def apply(
    context: ReconcileContext, storage_pods: StoragePods, tree: Tree, observed: SnapshotObservation, decided: SnapshotPlan
) -> None:
    """Carries out ``decided``. An error leaves the rest to the next reconciliation, which plans again."""
    if decided.left_to_creator:
        return
    cluster, metadata = context.cluster, tree["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    if decided.status != observed.status and not (observed.deleting and decided.remove_finalizer):
        tree = await cluster.apply_status(
            API_VERSION, SNAPSHOT_KIND, namespace, name, decided.status.to_status(), resource_version=metadata["resourceVersion"]
        )
    # Before anything that a conflict could end: the next plan sees no change of the status, and so has no event to record.
    for event in decided.events:
        await context.events.record(tree, event.reason, event.message, warning=event.warning)
    tree = await _label(context, tree, observed, decided)
    job = context.cache.job(namespace, observed.spec.job_reference.name) if observed.spec is not None else None
    job_spec = checked_job_spec(context, job)
    if decided.storage_command is not None and job is not None and job_spec is not None:
        await storage_pods.start(
            tree,
            job,
            job_spec,
            decided.storage_command,
            existing_path(observed.spec) if observed.spec is not None and not observed.deleting else decided.status.path,
        )
    if decided.delete_storage_pods:
        await storage_pods.delete(tree)
    if decided.ask is not None and observed.spec is not None:
        await _ask(context, namespace, observed, decided)
    if decided.add_finalizer or decided.remove_finalizer:
        others = [each for each in tree["metadata"].get("finalizers") or () if each != FINALIZER]
        await _patch(context, tree, {"finalizers": [*others, FINALIZER] if decided.add_finalizer else others})


async def _patch(context: ReconcileContext, tree: Tree, changed: Tree) -> Tree:
    """Changes metadata of ``tree`` and returns the object as it is now; a deleted object stays as it was."""
    metadata = tree["metadata"]
    patch = {"metadata": {**changed, "resourceVersion": metadata["resourceVersion"]}}
    written = await context.cluster.patch(API_VERSION, SNAPSHOT_KIND, metadata["namespace"], metadata["name"], patch)
    return written if written is not None else tree


async def _label(context: ReconcileContext, tree: Tree, observed: SnapshotObservation, decided: SnapshotPlan) -> Tree:
    """Copies the status into labels, so that snapshots can be selected. Returns the object as it is now."""
    if observed.spec is None or observed.deleting:
        return tree
    wanted = {
        LABEL_JOB: observed.spec.job_reference.name,
        LABEL_SNAPSHOT_TYPE: (SnapshotType.SAVEPOINT if observed.spec.savepoint is not None else SnapshotType.CHECKPOINT).value,
        LABEL_SNAPSHOT_STATE: decided.status.state.value,
    }
    labels = tree["metadata"].get("labels") or {}
    if LABEL_TRIGGER_TYPE not in labels:
        wanted[LABEL_TRIGGER_TYPE] = SnapshotTrigger.MANUAL.value
    if all(labels.get(label) == value for label, value in wanted.items()):
        return tree
    return await _patch(context, tree, {"labels": wanted})


async def _ask(context: ReconcileContext, namespace: str, observed: SnapshotObservation, decided: SnapshotPlan) -> None:
    job = context.cache.job(namespace, observed.spec.job_reference.name) if observed.spec is not None else None
    if job is None or decided.ask is None:
        return
    endpoint = driver_endpoint(context.secrets, job["metadata"]["name"], job["metadata"]["uid"], driver_pod_of(context, job))
    if endpoint is None:
        return
    kind, key = decided.ask["kind"], decided.ask["key"]
    asked = {name: decided.ask[name] for name in ("target", "format") if name in decided.ask}
    try:
        await context.drivers.ask(
            endpoint.url,
            endpoint.token,
            str(kind),
            str(key),
            asked if kind == "savepoint" else None,
            timeout_s=600,
            authority=endpoint.authority,
        )
    except ConflictError as error:
        _log.info("driver is busy, retrying", snapshot=observed.name, error=str(error)[:200])
