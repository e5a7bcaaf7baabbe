"""Plans what to do about a job from its observation. Pure, and the only place where the parts of planning meet."""

from __future__ import annotations

from statefulspark_operator.api.jobs import LifecycleState
from statefulspark_operator.reconcile.job.observe.observation import Observation
from statefulspark_operator.reconcile.job.plan import (
    checkpoint_objects,
    deletion,
    job_conditions,
    job_status,
    memory_status,
    missing_slots,
    name_conflicts,
    savepoint_schedule,
    spec_validity,
    supervision,
    transitions,
)
from statefulspark_operator.reconcile.job.plan.actions import AddFinalizer, CheckSecrets, Plan
from statefulspark_operator.reconcile.job.plan.draft import Draft


def plan(observed: Observation) -> Plan:
    """Decides what to do about a job.

    The same observation always gives the same plan. A plan that was executed in part is completed by the next one.
    """
    draft = Draft.of(observed)
    if draft.status.lifecycle_state is None:
        draft.enter(LifecycleState.CREATED, "Created", "The job was accepted and has not been deployed yet")
    job_status.report(draft)
    name_conflicts.report_conflict(draft)
    if not observed.deleting:
        spec_validity.report(draft)
    if observed.deleting:
        deletion.advance(draft)
    elif not observed.has_finalizer:
        draft.do(AddFinalizer())
        draft.requeue_after(0)
    elif draft.status.transition is not None:
        transitions.advance(draft)
    else:
        supervision.supervise(draft)
    if observed.spec is not None and not observed.deleting:
        savepoint_schedule.keep_schedule(draft, observed.spec)
        savepoint_schedule.keep_history(draft, observed.spec)
        checkpoint_objects.list_retained(draft, observed.spec)
    if observed.secrets_due and not observed.deleting:
        draft.do(CheckSecrets())
    memory_status.report_oom_kills(draft)
    job_conditions.set_conditions(draft)
    missing_slots.report(draft)
    savepoint_schedule.report(draft)
    job_status.settle_progress(draft)
    return draft.plan()
