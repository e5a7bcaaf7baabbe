"""Validating admission: rejects an invalid job or snapshot with a message that names the field and the remedy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from statefulspark.config.changes import refusal
from statefulspark.config.document_bounds import shown
from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.kubernetes.local_storage import storage_warnings
from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark.config.problems import MESSAGE_MAX
from statefulspark.config.state_backend import StateBackendType
from statefulspark.errors import InvalidInputError
from statefulspark_operator.api.jobs import StatefulSparkJobStatus
from statefulspark_operator.api.names import JOB_KIND, LABEL_CANARY, SNAPSHOT_KIND
from statefulspark_operator.api.snapshots import StateSnapshotStatus
from statefulspark_operator.reconcile.specs import checked_snapshot_spec
from statefulspark_operator.reconcile.state_backends import with_state_backend
from statefulspark_operator.reconcile.tenancy import Tenancy

_ANY: Final = Tenancy()
_UID_MAX: Final = 64
SnapshotOf = Callable[[str, str], Mapping[str, Any] | None]
"""The StateSnapshot of a namespace and name, as it was last seen; None if there is none, or none was seen yet."""


def _none(_namespace: str, _name: str) -> None:
    return None


def review(
    body: Mapping[str, Any],
    tenancy: Tenancy = _ANY,
    snapshot: SnapshotOf = _none,
    default_backend: str = StateBackendType.ROCKSDB,
) -> dict[str, Any]:
    """Answer an AdmissionReview.

    Args:
        body: The review.
        tenancy: What the authors of objects may name.
        snapshot: Finds the StateSnapshot that a job starts from.
        default_backend: State backend of new jobs that name none.

    Raises:
        KeyError, TypeError: It is none.
    """
    request = body["request"]
    if not isinstance(request["uid"], str) or len(request["uid"]) > _UID_MAX:
        raise TypeError("uid")
    response: dict[str, Any] = {"uid": request["uid"]}
    problem = _problem(request, tenancy, snapshot, default_backend)
    response["allowed"] = problem is None
    if problem is not None:
        response["status"] = {"code": 422, "reason": "Invalid", "message": shown(problem, MESSAGE_MAX)}
    elif warnings := _warnings(request, default_backend):
        response["warnings"] = warnings
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def denied(uid: str, message: str) -> dict[str, Any]:
    """Rejects an object whose review cannot be parsed. An invalid response would let it in where failurePolicy is Ignore."""
    response = {"uid": uid, "allowed": False, "status": {"code": 422, "reason": "Invalid", "message": message}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _problem(request: Mapping[str, Any], tenancy: Tenancy, snapshot: SnapshotOf, default_backend: str) -> str | None:
    """Reason to reject the request. Objects being deleted, and changes of status or metadata only, are always allowed."""
    new, old = request.get("object"), request.get("oldObject")
    if request.get("operation") not in {"CREATE", "UPDATE"} or not isinstance(new, dict) or request.get("subResource") == "status":
        return None
    if new["metadata"].get("deletionTimestamp") is not None or (isinstance(old, dict) and old.get("spec") == new.get("spec")):
        return None
    if new.get("kind") == SNAPSHOT_KIND:
        return _snapshot_problem(new, old) or _snapshot_place(new, tenancy)
    if new.get("kind") != JOB_KIND:
        return None
    try:
        spec = _checked(new, default_backend)
    except InvalidInputError as error:
        return str(error)
    labels, namespace = new["metadata"].get("labels"), new["metadata"].get("namespace") or request.get("namespace") or "default"
    # The canary lives beside the operator and runs nothing, as does whatever calls itself one.
    canary = isinstance(labels, dict) and labels.get(LABEL_CANARY) == "true"
    if not canary and (problem := tenancy.job_problem(str(namespace), spec) or _initial_problem(str(namespace), spec, tenancy, snapshot)):
        return problem
    try:
        before = _checked(old, default_backend) if isinstance(old, dict) else None
    except InvalidInputError:
        return None  # the stored spec is invalid; any valid spec is an improvement
    return refusal(before, spec, key_groups=_key_groups(old)) if before is not None else None


def _checked(job: Mapping[str, Any], default_backend: str) -> StatefulSparkJobSpec:
    return validate_on_kubernetes(with_state_backend(job, default_backend, kept=False)).spec


def _warnings(request: Mapping[str, Any], default_backend: str) -> list[str]:
    """Warnings that kubectl shows for an allowed object."""
    new = request.get("object")
    if request.get("operation") not in {"CREATE", "UPDATE"} or not isinstance(new, dict) or new.get("kind") != JOB_KIND:
        return []
    try:
        spec = _checked(new, default_backend)
        return [*storage_warnings(spec), *spec.state_backend.warnings()]
    except InvalidInputError:
        return []


def _key_groups(job: Any) -> int | None:
    """Number of key groups of the job's state, by its status; None when it never ran."""
    return StatefulSparkJobStatus.read(job.get("status")).max_parallelism


def _initial_problem(namespace: str, spec: StatefulSparkJobSpec, tenancy: Tenancy, snapshot: SnapshotOf) -> str | None:
    """Checks what the cache knows of the snapshot; the operator checks again when the job starts."""
    if spec.initial_snapshot is None or (found := snapshot(namespace, spec.initial_snapshot.name)) is None:
        return None
    path = StateSnapshotStatus.read(found.get("status")).path
    return tenancy.initial_problem(namespace, spec.initial_snapshot.name, path) if path is not None else None


def _snapshot_place(new: Mapping[str, Any], tenancy: Tenancy) -> str | None:
    spec, _ = checked_snapshot_spec(new)
    return tenancy.snapshot_problem(str(new["metadata"].get("namespace") or "default"), spec) if spec is not None else None


def _snapshot_problem(new: Mapping[str, Any], old: Any) -> str | None:
    after, problem = checked_snapshot_spec(new)
    before = checked_snapshot_spec(old)[0] if isinstance(old, dict) else None
    if after is None or before is None:
        return problem
    refused = after.refused_change(before)
    return None if refused is None else f"spec.{refused}"
