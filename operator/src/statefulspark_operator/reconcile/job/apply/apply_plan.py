"""Executes a plan: the status first, then the events, then the actions. Every action is idempotent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import structlog

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark_operator.api.names import (
    API_VERSION,
    FINALIZER,
    JOB_KIND,
    LABEL_JOB,
    LABEL_SNAPSHOT_STATE,
    LABEL_SNAPSHOT_TYPE,
    LABEL_TRIGGER_TYPE,
    SNAPSHOT_KIND,
)
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotType, StateSnapshotStatus
from statefulspark_operator.builders import children
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.builders.pods import driver_pod
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.job.observe.driver_endpoint import driver_endpoint
from statefulspark_operator.reconcile.job.observe.observation import Observation
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
from statefulspark_operator.reconcile.ownership import NameTakenError, apply_owned, owned_uid

_log = structlog.get_logger("statefulspark.operator.apply")


class StartRefusedError(InvalidInputError):
    """The API server rejects the driver's pod, or another child that it needs, permanently."""


async def apply(context: ReconcileContext, job: Tree, observed: Observation, plan: Plan) -> None:
    """Executes ``plan``. An error leaves the rest to the next reconciliation, which plans again.

    Raises:
        StartRefusedError: The API server rejects a child of a job that is to start.
        InvalidInputError: It rejects something else.
    """
    starts = any(isinstance(action, CreateDriver) for action in plan.actions)
    if plan.status != observed.status:
        written = await context.cluster.apply_status(
            API_VERSION,
            JOB_KIND,
            observed.namespace,
            observed.name,
            plan.status.to_status(),
            resource_version=job["metadata"]["resourceVersion"],
        )
        context.cache.record_write(written)
        # Later requests must carry this version: the old one would be rejected.
        job = {**job, "metadata": {**job["metadata"], "resourceVersion": written["metadata"]["resourceVersion"]}}
    for event in plan.events:
        await context.events.record(job, event.reason, event.message, warning=event.warning)
    for action in plan.actions:
        _log.info("executing action", job=observed.name, namespace=observed.namespace, action=type(action).__name__)
        try:
            await _carry_out(context, job, observed, plan, action)
        except NameTakenError:
            raise
        except InvalidInputError as error:
            if starts and isinstance(action, ApplyChildren | CreateDriver):
                raise StartRefusedError(str(error)) from error
            raise


async def release(context: ReconcileContext, job: Tree) -> None:
    """Takes the operator's finalizer off a job."""
    await _set_finalizers(context, job, [name for name in job["metadata"].get("finalizers") or () if name != FINALIZER])


async def _carry_out(context: ReconcileContext, job: Tree, observed: Observation, plan: Plan, action: Action) -> None:
    cluster = context.cluster
    match action:
        case AddFinalizer():
            await _set_finalizers(context, job, [*(job["metadata"].get("finalizers") or ()), FINALIZER])
        case RemoveFinalizer():
            await release(context, job)
        case ApplyChildren():
            await _apply_children(context, job, observed, plan, action)
        case CreateDriver():
            await _create_driver(context, observed, action)
        case DeleteDriver():
            await cluster.delete("v1", "Pod", observed.namespace, _identity(observed, 0).driver, uid=action.uid, grace_s=action.grace_s)
        case DeleteExecutor():
            await cluster.delete("v1", "Pod", observed.namespace, action.pod, uid=action.uid)
        case AskDriver():
            await _ask_driver(context, observed, action)
        case CheckSecrets():
            await context.secrets.make(_identity(observed, observed.generation), observed.now)
        case TakeSnapshot():
            await _take_snapshot(context, observed, action)
        case DeleteSnapshot():
            await cluster.delete(API_VERSION, SNAPSHOT_KIND, observed.namespace, action.name)


def _identity(observed: Observation, generation: int) -> JobIdentity:
    return JobIdentity(name=observed.name, namespace=observed.namespace, uid=observed.uid, generation=generation)


async def _set_finalizers(context: ReconcileContext, job: Tree, finalizers: list[str]) -> None:
    metadata = job["metadata"]
    # With the resource version: a finalizer added concurrently by another client must not be lost.
    patch = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
    written = await context.cluster.patch(API_VERSION, JOB_KIND, metadata["namespace"], metadata["name"], patch)
    if written is not None:
        context.cache.record_write(written)


async def _apply_children(context: ReconcileContext, job: Tree, observed: Observation, plan: Plan, action: ApplyChildren) -> None:
    cluster, spec = context.cluster, action.spec
    identity = _identity(observed, observed.generation)
    repaired: list[str] = []
    wanted = [
        document
        for document in _children(context, identity, spec, job_id=plan.status.job_id or observed.uid, parallelism=action.parallelism)
        if not (action.changed_only and context.cache.is_up_to_date(document))
    ]
    # Check all names before the first change: a job with a name conflict gets none of its children.
    uids = [await owned_uid(cluster, document, identity) for document in wanted]
    if not action.changed_only:
        repaired += await context.secrets.make(identity, observed.now)
    for document, uid in zip(wanted, uids, strict=True):
        before = context.cache.child_version(document)
        if context.cache.record_apply(document, await apply_owned(cluster, document, identity, uid), before):
            repaired.append(f"{document['kind']} {document['metadata']['name']}")
    if action.repair and repaired:
        message = f"{', '.join(repaired)}: changed or deleted by another client; restored to the desired state"
        await context.events.record(job, "ChildrenRepaired", message, warning=True)


def _children(
    context: ReconcileContext, identity: JobIdentity, spec: StatefulSparkJobSpec, *, job_id: str, parallelism: int
) -> Iterator[Tree]:
    if spec.service_account is None:
        yield children.service_account(identity)
        yield children.role(identity)
        yield children.role_binding(identity)
    yield children.service(identity)
    yield children.config_map(identity, spec, image=_image(context, spec), job_id=job_id, parallelism=parallelism)
    if context.disruption_budgets is not None:
        yield children.disruption_budget(identity, api_version=context.disruption_budgets)
    if context.job_api_from is not None:
        yield children.network_policy(identity, api_from=context.job_api_from)


async def _create_driver(context: ReconcileContext, observed: Observation, action: CreateDriver) -> None:
    spec = action.spec
    identity = _identity(observed, action.generation)
    pod = driver_pod(
        identity,
        spec,
        image=_image(context, spec),
        account=spec.service_account or identity.account,
        key_id=context.secrets.key_id,
        locations=context.tenancy.savepoint_places(observed.namespace),
    )
    if not await context.cluster.create(pod):
        await owned_uid(context.cluster, pod, identity)
        _log.info("driver pod already exists", job=observed.name, namespace=observed.namespace)


def _image(context: ReconcileContext, spec: StatefulSparkJobSpec) -> str:
    image = spec.image or context.default_image
    if image is None:
        raise InvalidInputError("no image is set", field="spec.image", remedy="Set the job's image; this operator has no default image")
    return image


async def _ask_driver(context: ReconcileContext, observed: Observation, action: AskDriver) -> None:
    endpoint = driver_endpoint(context.secrets, observed.name, observed.uid, observed.pod)
    if endpoint is None:
        return
    body: dict[str, Any] | None = None
    if action.kind == "stop":
        body = {"savepoint": action.savepoint}
    elif action.kind == "cancel":
        body = {"retain": action.retain}
    elif action.kind == "rescale":
        body = {"parallelism": action.parallelism}
    try:
        await context.drivers.ask(
            endpoint.url, endpoint.token, action.kind, action.key, body, action.timeout_s, authority=endpoint.authority
        )
    except ConflictError as error:
        # Another operation is in progress; the next reconciliation retries.
        _log.info("driver is busy, retrying", job=observed.name, error=str(error)[:200])


async def _take_snapshot(context: ReconcileContext, observed: Observation, action: TakeSnapshot) -> None:
    cluster = context.cluster
    created = await cluster.create(snapshot_object(observed.namespace, observed.name, action))
    if created is None or action.known is None:
        return
    # Without reading storage: the job may be deleted before a storage pod could run.
    status = StateSnapshotStatus(
        state=SnapshotState.COMPLETED,
        observed_generation=1,
        result_timestamp=action.known.completed_at,
        path=action.known.path,
        size_bytes=action.known.size_bytes,
        checkpoint_id=action.known.id,
        batch=action.known.batch,
        max_parallelism=action.max_parallelism,
    )
    try:
        await cluster.apply_status(
            API_VERSION,
            SNAPSHOT_KIND,
            observed.namespace,
            action.name,
            status.to_status(),
            resource_version=created["metadata"]["resourceVersion"],
        )
    except ConflictError as error:
        # Changed since its creation, perhaps deleted and created again: its own reconciliation completes it.
        _log.info("snapshot was changed by another client", snapshot=action.name, namespace=observed.namespace, error=str(error)[:200])


def snapshot_object(namespace: str, job: str, action: TakeSnapshot) -> Tree:
    """Return the StateSnapshot that an action creates for a job."""
    source: dict[str, Any] = {"path": action.existing_path} if action.existing_path else {}
    if action.type is SnapshotType.SAVEPOINT:
        source |= {"alreadyExists": action.existing_path is not None, "disposeOnDelete": action.dispose}
        if action.format != "native":
            source["format"] = action.format
    labels = {LABEL_JOB: job, LABEL_SNAPSHOT_TYPE: action.type.value, LABEL_TRIGGER_TYPE: action.trigger.value}
    if action.known is not None:
        labels[LABEL_SNAPSHOT_STATE] = SnapshotState.COMPLETED.value
    return {
        "apiVersion": API_VERSION,
        "kind": SNAPSHOT_KIND,
        "metadata": {
            "name": action.name,
            "namespace": namespace,
            "labels": labels,
        },
        "spec": {"jobReference": {"name": job}, action.type.value: source},
    }
