"""Validity of the spec, and how an invalid spec is reported. Without the webhook, the operator is the first to check it. Pure."""

from __future__ import annotations

from typing import Final

from statefulspark.config.changes import refusal
from statefulspark_operator.api.conditions import ConditionStatus, ConditionType
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import LifecycleState
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.specs import checked_spec

INVALID: Final = "InvalidSpec"
IMMUTABLE: Final = "ImmutableField"
_REASONS: Final = frozenset({INVALID, IMMUTABLE})


def problem_of(draft: Draft) -> Failure | None:
    """Reason for which the spec is invalid, with field and remedy; None if it is valid."""
    spec, reconciliation = draft.observed.spec, draft.status.reconciliation
    if draft.observed.problem is not None or spec is None:
        return Failure(reason=INVALID, message=draft.observed.problem or "the spec cannot be parsed")
    before = checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None
    refused = refusal(before, spec, key_groups=draft.status.max_parallelism) if before is not None else None
    return Failure(reason=IMMUTABLE, message=refused) if refused is not None else None


def report(draft: Draft) -> None:
    """Records an invalid spec as the job's error, unless the running job has a more severe one, with one warning event each."""
    problem, error = problem_of(draft), draft.status.error
    if problem is None:
        if error is not None and error.reason in _REASONS:
            draft.set(error=None)
        return
    if not _known(draft, problem):
        draft.record_event(problem.reason, problem.message, warning=True)
    if error is None or error.reason in _REASONS:
        draft.failed(problem)
    if draft.status.reconciliation is None:
        draft.enter(LifecycleState.FAILED, problem.reason, problem.message)


def _known(draft: Draft, problem: Failure) -> bool:
    """True if the condition Valid reports this problem already."""
    return any(
        (each.type, each.status, each.message) == (ConditionType.VALID, ConditionStatus.FALSE, problem.message)
        for each in draft.status.conditions
    )
