"""Deletion of a job: the final savepoint if requested, then the driver, then the finalizer. Every step has a timeout. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark_operator.api.jobs import LifecycleState, TransitionKind
from statefulspark_operator.reconcile.job.plan import stopping, transitions
from statefulspark_operator.reconcile.job.plan.actions import AskDriver, RemoveFinalizer
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.specs import checked_spec

_SAVEPOINT: Final = "savepoint"
_DEFAULT_WITHIN: Final = timedelta(minutes=10)
_POLL_S: Final = 1.0


def advance(draft: Draft) -> None:
    """Takes the next step of deleting the job. Nothing in storage is deleted."""
    if not draft.observed.has_finalizer:
        return
    transition = draft.status.transition
    if transition is None or transition.kind is not TransitionKind.DELETE:
        reconciliation = draft.status.reconciliation
        spec = draft.observed.spec or (checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None)
        asked = spec is not None and spec.savepoint_on_deletion and spec.checkpointing.savepoint_dir is not None
        within = timedelta(milliseconds=spec.savepoints.timeout) if spec is not None else _DEFAULT_WITHIN
        draft.enter(LifecycleState.DELETING, "Deleted", "Stopping and deleting the job. Its state is kept in storage")
        draft.begin(TransitionKind.DELETE, _SAVEPOINT if asked else stopping.REMOVE, within=within)
        return
    if transition.step == _SAVEPOINT:
        _savepoint(draft)
    elif transitions.remove_pod(draft):
        draft.do(RemoveFinalizer())


def _savepoint(draft: Draft) -> None:
    """Stops the driver with a savepoint, as long as one is possible."""
    transition, pod, driver = draft.status.transition, draft.observed.pod, draft.observed.driver
    if transition is None:
        return
    late = transition.deadline is not None and draft.now >= transition.deadline
    if pod is None or pod.over or pod.deleting:
        _give_up(draft, "the driver is not running")
        return
    if driver is None:
        if late or (draft.now - transition.since).total_seconds() >= stopping.SILENT_S:
            _give_up(draft, "the driver does not respond")
        draft.requeue_after(_POLL_S)
        return
    operation = driver.operations.get("delete")
    if operation is None and driver.fails:
        _give_up(draft, "its batches are failing")
        return
    if operation is None:
        draft.do(AskDriver(kind="stop", key="delete", savepoint=True))
    elif operation.state == "SUCCEEDED":
        path = operation.snapshot.path if operation.snapshot is not None else None
        draft.record_event("SavepointCompleted", f"Final savepoint: {path}" if path else "The job had no state to save")
        draft.step(stopping.REMOVE, state_path=path)
        return
    elif operation.state == "FAILED" or late:
        _give_up(draft, operation.error.message if operation.error is not None else "it took longer than spec.savepoints.timeout")
        return
    draft.requeue_after(_POLL_S)


def _give_up(draft: Draft, why: str) -> None:
    last = draft.status.last_checkpoint
    where = f"; the latest state in storage is {last.path}" if last is not None else ""
    draft.record_event("SavepointSkipped", f"Deleting the job without a final savepoint: {why}{where}", warning=True)
    draft.step(stopping.REMOVE)
