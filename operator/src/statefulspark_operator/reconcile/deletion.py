"""A job that is being deleted: its last savepoint if asked for, then its driver, then the finalizer. Never for ever. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark_operator.api.jobs import LifecycleState, TransitionKind
from statefulspark_operator.reconcile import transitions
from statefulspark_operator.reconcile.actions import AskDriver, RemoveFinalizer
from statefulspark_operator.reconcile.lifecycle import Draft
from statefulspark_operator.reconcile.specs import checked_spec

_SAVEPOINT: Final = "savepoint"
_DEFAULT_WITHIN: Final = timedelta(minutes=10)
_POLL_S: Final = 1.0


def advance(draft: Draft) -> None:
    """Take the next step of deleting the job. Nothing in storage is deleted."""
    if not draft.seen.has_finalizer:
        return
    transition = draft.status.transition
    if transition is None or transition.kind is not TransitionKind.DELETE:
        reconciliation = draft.status.reconciliation
        spec = draft.seen.spec or (checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None)
        asked = spec is not None and spec.savepoint_on_deletion and spec.checkpointing.savepoint_dir is not None
        within = timedelta(milliseconds=spec.savepoints.timeout) if spec is not None else _DEFAULT_WITHIN
        draft.enter(LifecycleState.DELETING, "Deleted", "The job is stopped and removed; its state in storage stays")
        draft.begin(TransitionKind.DELETE, _SAVEPOINT if asked else transitions.REMOVE, within=within)
        return
    if transition.step == _SAVEPOINT:
        _savepoint(draft)
    elif transitions.remove_pod(draft):
        draft.do(RemoveFinalizer())


def _savepoint(draft: Draft) -> None:
    """Stop with a savepoint, as long as there is hope for one."""
    transition, pod, driver = draft.status.transition, draft.seen.pod, draft.seen.driver
    if transition is None:
        return
    late = transition.deadline is not None and draft.now >= transition.deadline
    if pod is None or pod.over or pod.deleting:
        _give_up(draft, "no driver runs")
        return
    if driver is None:
        if late or (draft.now - transition.since).total_seconds() >= transitions.SILENT_S:
            _give_up(draft, "the driver does not answer")
        draft.look_again(_POLL_S)
        return
    operation = driver.operations.get("delete")
    if operation is None:
        draft.do(AskDriver(kind="stop", key="delete", savepoint=True))
    elif operation.state == "SUCCEEDED":
        path = operation.snapshot.path if operation.snapshot is not None else None
        draft.tell("SavepointCompleted", f"The last savepoint is {path}" if path else "The job had no state to keep")
        draft.step(transitions.REMOVE, state_path=path)
        return
    elif operation.state == "FAILED" or late:
        _give_up(draft, operation.error.message if operation.error is not None else "it took longer than spec.savepoints.timeout")
        return
    draft.look_again(_POLL_S)


def _give_up(draft: Draft, why: str) -> None:
    last = draft.status.last_checkpoint or draft.seen.stored
    where = f"; the newest state in storage is {last.path}" if last is not None else ""
    draft.tell("SavepointSkipped", f"The job is deleted without a last savepoint: {why}{where}", warning=True)
    draft.step(transitions.REMOVE)
