"""Children that cannot be created: objects of another owner have their names, or the API server refuses the driver's pod. Pure."""

from __future__ import annotations

from typing import Final

from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.reconcile.job.plan import failing_batches
from statefulspark_operator.reconcile.job.plan.draft import Draft

TAKEN: Final = "NameTaken"
REFUSED: Final = "PodRefused"


def report_conflict(draft: Draft) -> None:
    """Records the name conflict of the last attempt, or clears a resolved one."""
    error, name_conflict = draft.status.error, draft.observed.name_conflict
    if name_conflict is not None and error is not None and error.reason == failing_batches.REASON:
        return  # failing batches are the more severe error; the status has only one
    if name_conflict is not None:
        draft.record_failure(Failure(reason=TAKEN, message=name_conflict), name_conflict)
    elif error is not None and error.reason == TAKEN:
        draft.set(error=None)


def refusal_of(draft: Draft) -> Failure | None:
    """Refusal of the pod that the transition starts, as a failure; None if the API server has not refused it."""
    transition, refusal = draft.status.transition, draft.observed.refusal
    if transition is None or not transition.attempts or refusal is None:
        return None
    return Failure(reason=REFUSED, message=f"The API server refuses the driver's pod: {refusal.message}")
