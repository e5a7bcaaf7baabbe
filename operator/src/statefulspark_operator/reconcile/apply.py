"""Carries out a plan: the status first, then the actions, then the events. Every action may be repeated."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from statefulspark_operator.clients.events import Events
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.actions import (
    Action,
    AddFinalizer,
    ApplyChildren,
    AskDriver,
    CreateDriver,
    DeleteDriver,
    DeleteSnapshot,
    Plan,
    RemoveFinalizer,
    TakeSnapshot,
)
from statefulspark_operator.reconcile.observation import Observation
from statefulspark_operator.reconcile.observe import Eyes
from statefulspark_operator.reconcile.reach import way_to_driver

_log = structlog.get_logger("statefulspark.operator.apply")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What a plan is carried out with."""

    eyes: Eyes
    events: Events
    disruption_budgets: str | None
    """API version of pod disruption budgets that the cluster serves; None when it serves none."""
    made: Callable[[Tree], bool]
    """Whether a child is as a document says, so that it need not be applied again."""
    applied: Callable[[Tree, Tree], bool]
    """Told of each document that was applied and what that gave; says whether it changed anything."""
    wrote: Callable[[Tree], None]
    """Told of each job as it is after a write."""


async def apply(hands: Hands, job: Tree, seen: Observation, plan: Plan) -> None:
    """Carry out ``plan``. An error leaves the rest for the next look, which plans anew."""
    if plan.status != seen.status:
        written = await hands.eyes.cluster.apply_status(API_VERSION, JOB_KIND, seen.namespace, seen.name, plan.status.to_status())
        hands.wrote(written)
        # What follows is of this version: the old one would be refused.
        job = {**job, "metadata": {**job["metadata"], "resourceVersion": written["metadata"]["resourceVersion"]}}
    for event in plan.events:
        await hands.events.tell(job, event.reason, event.message, warning=event.warning)
    for action in plan.actions:
        _log.info("action", job=seen.name, namespace=seen.namespace, action=type(action).__name__)
        await _carry_out(hands, job, seen, plan, action)


async def _carry_out(hands: Hands, job: Tree, seen: Observation, plan: Plan, action: Action) -> None:
    cluster = hands.eyes.cluster
    match action:
        case AddFinalizer():
            await _set_finalizers(hands, job, [*(job["metadata"].get("finalizers") or ()), FINALIZER])
        case RemoveFinalizer():
            await _set_finalizers(hands, job, [name for name in job["metadata"].get("finalizers") or () if name != FINALIZER])
        case ApplyChildren():
            await _apply_children(hands, job, seen, plan, action)
        case CreateDriver():
            await _create_driver(hands, seen, action)
        case DeleteDriver():
            await cluster.delete("v1", "Pod", seen.namespace, _identity(seen, 0).driver, uid=action.uid, grace_s=action.grace_s)
        case AskDriver():
            await _ask_driver(hands, seen, action)
        case TakeSnapshot():
            await _take_snapshot(hands, seen, action)
        case DeleteSnapshot():
            await cluster.delete(API_VERSION, SNAPSHOT_KIND, seen.namespace, action.name)


def _identity(seen: Observation, generation: int) -> JobIdentity:
    return JobIdentity(name=seen.name, namespace=seen.namespace, uid=seen.uid, generation=generation)


async def _set_finalizers(hands: Hands, job: Tree, finalizers: list[str]) -> None:
    metadata = job["metadata"]
    # With the version: a finalizer that somebody else added meanwhile must not be lost.
    patch = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
    written = await hands.eyes.cluster.merge(API_VERSION, JOB_KIND, metadata["namespace"], metadata["name"], patch)
    if written is not None:
        hands.wrote(written)


async def _apply_children(hands: Hands, job: Tree, seen: Observation, plan: Plan, action: ApplyChildren) -> None:
    cluster, spec = hands.eyes.cluster, StatefulSparkJobSpec.model_validate(action.spec)
    identity = _identity(seen, seen.generation)
    repaired = []
    if not action.changed_only and await cluster.get("v1", "Secret", identity.namespace, identity.secret) is None:
        await cluster.create(children.secret(identity, token=secrets.token_urlsafe(32), spark_secret=secrets.token_urlsafe(32)))
        hands.eyes.secrets.forget(identity.namespace, identity.secret)
        repaired.append(f"Secret {identity.secret}")
    for document in _children(hands, identity, spec, job_id=plan.status.job_id or seen.uid, parallelism=action.parallelism):
        if action.changed_only and hands.made(document):
            continue
        if hands.applied(document, await cluster.apply(document)):
            repaired.append(f"{document['kind']} {document['metadata']['name']}")
    if action.repair and repaired:
        message = f"{', '.join(repaired)}: changed or deleted by somebody else, and made as it should be"
        await hands.events.tell(job, "ChildrenRepaired", message, warning=True)


def _children(hands: Hands, identity: JobIdentity, spec: StatefulSparkJobSpec, *, job_id: str, parallelism: int) -> Iterator[Tree]:
    if spec.service_account is None:
        yield children.service_account(identity)
        yield children.role(identity)
        yield children.role_binding(identity)
    yield children.service(identity)
    yield children.config_map(identity, spec, image=_image(hands, spec), job_id=job_id, parallelism=parallelism)
    if hands.disruption_budgets is not None:
        yield children.disruption_budget(identity, api_version=hands.disruption_budgets)


async def _create_driver(hands: Hands, seen: Observation, action: CreateDriver) -> None:
    spec = StatefulSparkJobSpec.model_validate(action.spec)
    identity = _identity(seen, action.generation)
    pod = driver_pod(identity, spec, image=_image(hands, spec), account=spec.service_account or identity.account)
    if not await hands.eyes.cluster.create(pod):
        _log.info("there is a driver already", job=seen.name, namespace=seen.namespace)


def _image(hands: Hands, spec: StatefulSparkJobSpec) -> str:
    image = spec.image or hands.eyes.default_image
    if image is None:
        raise InvalidInputError("no image", field="spec.image", remedy="Name the job's image; this operator has no default")
    return image


async def _ask_driver(hands: Hands, seen: Observation, action: AskDriver) -> None:
    way = await way_to_driver(hands.eyes.secrets, seen.namespace, seen.name, seen.pod)
    if way is None:
        return
    body: dict[str, Any] | None = None
    if action.kind == "stop":
        body = {"savepoint": action.savepoint}
    elif action.kind == "rescale":
        body = {"parallelism": action.parallelism}
    try:
        await hands.eyes.drivers.ask(way.url, way.token, action.kind, action.key, body, action.timeout_s)
    except ConflictError as error:
        # Something else is under way in the driver; the next look asks again.
        _log.info("the driver is busy", job=seen.name, error=str(error)[:200])


async def _take_snapshot(hands: Hands, seen: Observation, action: TakeSnapshot) -> None:
    cluster = hands.eyes.cluster
    if not await cluster.create(_snapshot(seen, action)) or action.known is None:
        return
    # Without a look into storage, for which the job may be gone too soon.
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
    await cluster.apply_status(API_VERSION, SNAPSHOT_KIND, seen.namespace, action.name, status.to_status())


def _snapshot(seen: Observation, action: TakeSnapshot) -> Tree:
    source: dict[str, Any] = {"path": action.existing_path} if action.existing_path else {}
    if action.type is SnapshotType.SAVEPOINT:
        source |= {"alreadyExists": action.existing_path is not None, "disposeOnDelete": action.dispose}
    labels = {LABEL_JOB: seen.name, LABEL_SNAPSHOT_TYPE: action.type.value, LABEL_TRIGGER_TYPE: action.trigger.value}
    if action.known is not None:
        labels[LABEL_SNAPSHOT_STATE] = SnapshotState.COMPLETED.value
    return {
        "apiVersion": API_VERSION,
        "kind": SNAPSHOT_KIND,
        "metadata": {
            "name": action.name,
            "namespace": seen.namespace,
            "labels": labels,
        },
        "spec": {"jobReference": {"name": seen.name}, action.type.value: source},
    }
