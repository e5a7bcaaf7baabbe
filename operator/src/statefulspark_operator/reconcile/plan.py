"""The plan: from one look at a job to what to do next. Pure, and the only place where the parts of planning meet."""

from __future__ import annotations

from statefulspark_operator.api.jobs import LifecycleState
from statefulspark_operator.reconcile import deletion, memory, reports, retained, schedules, steady, transitions
from statefulspark_operator.reconcile.actions import AddFinalizer, Plan
from statefulspark_operator.reconcile.lifecycle import Draft
from statefulspark_operator.reconcile.observation import Observation


def plan(seen: Observation) -> Plan:
    """Decide what to do about a job.

    Called again and again; the same observation gives the same plan, and a plan that was carried out in part is finished by the next one.
    """
    draft = Draft.of(seen)
    if draft.status.lifecycle_state is None:
        draft.enter(LifecycleState.CREATED, "Created", "Known to the operator")
    reports.report(draft)
    if seen.deleting:
        deletion.advance(draft)
    elif not seen.has_finalizer:
        draft.do(AddFinalizer())
        draft.look_again(0)
    elif draft.status.transition is not None:
        transitions.advance(draft)
    else:
        steady.look(draft)
    if seen.spec is not None and not seen.deleting:
        schedules.keep_schedule(draft, seen.spec)
        schedules.keep_history(draft, seen.spec)
        retained.list_retained(draft, seen.spec)
    memory.tell_kills(draft)
    reports.conclude(draft)
    reports.settle_progress(draft)
    return draft.plan()
