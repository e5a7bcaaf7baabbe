"""Admission: a bad job or snapshot is refused with the sentence that says what to change, before anything is stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statefulspark.config.kubernetes import validate_on_kubernetes
from statefulspark.errors import InvalidInputError
from statefulspark_operator.api.names import JOB_KIND, SNAPSHOT_KIND
from statefulspark_operator.reconcile.specs import checked_snapshot_spec
from statefulspark_operator.reconcile.steady import refused_changes


def review(body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer an AdmissionReview.

    Raises:
        KeyError, TypeError: It is none.
    """
    request = body["request"]
    response: dict[str, Any] = {"uid": request["uid"]}
    problem = _problem(request)
    response["allowed"] = problem is None
    if problem is not None:
        response["status"] = {"code": 422, "reason": "Invalid", "message": problem}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _problem(request: Mapping[str, Any]) -> str | None:
    """Why the request is refused. What is being deleted, or only has its status or metadata changed, is let through."""
    new, old = request.get("object"), request.get("oldObject")
    if request.get("operation") not in {"CREATE", "UPDATE"} or not isinstance(new, dict) or request.get("subResource") == "status":
        return None
    if new["metadata"].get("deletionTimestamp") is not None or (isinstance(old, dict) and old.get("spec") == new.get("spec")):
        return None
    if new.get("kind") == SNAPSHOT_KIND:
        return _snapshot_problem(new, old)
    if new.get("kind") != JOB_KIND:
        return None
    try:
        spec = validate_on_kubernetes(new).spec
    except InvalidInputError as error:
        return str(error)
    try:
        before = validate_on_kubernetes(old).spec if isinstance(old, dict) else None
    except InvalidInputError:
        return None  # what is there is not valid; any valid spec is better
    refused = refused_changes(before, spec)
    if refused is None:
        return None
    return f"spec.{', spec.'.join(refused.rejected)}: fixed for the life of the job's state. Set it back, or start a new job"


def _snapshot_problem(new: Mapping[str, Any], old: Any) -> str | None:
    after, problem = checked_snapshot_spec(new)
    before = checked_snapshot_spec(old)[0] if isinstance(old, dict) else None
    if after is None or before is None:
        return problem
    refused = after.refused_change(before)
    return None if refused is None else f"spec.{refused}"
