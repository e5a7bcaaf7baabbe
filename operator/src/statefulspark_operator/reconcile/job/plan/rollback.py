"""Rollback: when a spec that does not work is replaced by the last stable one, and what becomes of a job that has none. Pure.

A spec is abandoned if its driver does not start within ``spec.upgradeTimeout`` or fails for certain (`transitions`, `supervision`), if its batches fail for
too long (`failing_batches`), or if it completes no checkpoint in time (`stability`). Each of them calls `roll_back_or_fail`. The steps of the
rollback itself are those of any transition: remove, start (the last stable spec), wait.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.changes import Cost, dearest, spec_changes
from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import LifecycleState, ReconciliationState, TransitionKind
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.job.plan.stopping import REMOVE
from statefulspark_operator.reconcile.specs import checked_spec

_TIMEOUT: Final = timedelta(minutes=10)
"""Deadline of the start of the last stable spec."""


def roll_back_or_fail(draft: Draft, failure: Failure) -> None:
    """Rolls back to the last stable spec, or fails the job if there is none."""
    draft.failed(failure)
    if not is_possible(draft):
        draft.end()
        draft.enter(LifecycleState.FAILED, failure.reason, failure.message)
        draft.record_event("Failed", failure.message, warning=True)
        return
    draft.record_event("RollingBack", f"The upgrade failed; rolling back to the last stable spec: {failure.message}", warning=True)
    draft.begin(TransitionKind.ROLLBACK, REMOVE, within=_TIMEOUT)
    draft.reconciled(state=ReconciliationState.ROLLING_BACK)
    draft.enter(LifecycleState.ROLLING_BACK, failure.reason, failure.message)


def is_possible(draft: Draft) -> bool:
    """True if another spec was stable before, spec.rollback allows it, and the spec that failed is not that of a rollback."""
    reconciliation, transition, spec = draft.status.reconciliation, draft.status.transition, draft.observed.spec
    return (
        reconciliation is not None
        and reconciliation.last_stable_spec is not None
        and reconciliation.last_stable_spec != reconciliation.last_reconciled_spec
        and (spec is None or spec.rollback)
        and (transition is None or transition.kind is not TransitionKind.ROLLBACK)
    )


def has_other_spec(draft: Draft, spec: StatefulSparkJobSpec) -> bool:
    """True if a driver with ``spec`` could be rolled back to another spec. A mere rescale does not count: the number of slots does not break checkpoints."""
    reconciliation, wanted = draft.status.reconciliation, draft.observed.spec
    stable = checked_spec(reconciliation.last_stable_spec) if reconciliation is not None else None
    if stable is None or (wanted is not None and not wanted.rollback):
        return False
    return dearest(spec_changes(stable, spec, key_groups=draft.status.max_parallelism)) is Cost.UPGRADE


def rolled_back(draft: Draft, restored: str) -> None:
    """Completes a rollback: the last stable spec runs.

    Args:
        draft: Draft of the job.
        restored: Names the state that its driver restored; part of the event.
    """
    draft.reconciled(state=ReconciliationState.ROLLED_BACK)
    draft.enter(LifecycleState.ROLLED_BACK, "RolledBack", "Running the last stable spec. Correct the new spec to try again")
    draft.record_event("RolledBack", f"Rolled back to the last stable spec{restored}")
