"""Deletion of a job: the final savepoint or the deletion of its checkpoints if requested, then the driver, then the finalizer.

Every step has a timeout. Pure. A job without a final savepoint is canceled: ``retention.onCancellation`` decides what becomes of its checkpoints.
Only the job's own driver deletes them, because the operator never accesses storage. If the driver cannot, an event says where they are.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.checkpointing import OnCancellation
from statefulspark_operator.api.jobs import LifecycleState, TransitionKind
from statefulspark_operator.reconcile.job.plan import stopping, transitions
from statefulspark_operator.reconcile.job.plan.actions import AskDriver, RemoveFinalizer
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.specs import checked_spec

_SAVEPOINT: Final = "savepoint"
_CANCEL: Final = "cancel"
_CANCELED: Final = "CANCELED"
_DEFAULT_WITHIN: Final = timedelta(minutes=10)
_POLL_S: Final = 1.0


def advance(draft: Draft) -> None:
    """Takes the next step of deleting the job."""
    if not draft.observed.has_finalizer:
        return
    transition = draft.status.transition
    if transition is None or transition.kind is not TransitionKind.DELETE:
        reconciliation = draft.status.reconciliation
        spec = draft.observed.spec or (checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None)
        asked = spec is not None and spec.savepoint_on_deletion and spec.checkpointing.savepoint_dir is not None
        within = timedelta(milliseconds=spec.savepoints.timeout) if spec is not None else _DEFAULT_WITHIN
        deletes = spec is not None and spec.checkpointing.retention.on_cancellation is OnCancellation.DELETE and not asked
        stays = "Its checkpoints and changelogs are deleted, savepoints are kept" if deletes else "Its state is kept in storage"
        draft.enter(LifecycleState.DELETING, "Deleted", f"Stopping and deleting the job. {stays}")
        draft.begin(TransitionKind.DELETE, _SAVEPOINT if asked else _CANCEL if deletes else stopping.REMOVE, within=within)
        return
    if transition.step == _SAVEPOINT:
        _savepoint(draft)
    elif transition.step == _CANCEL:
        _cancel(draft)
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


def _cancel(draft: Draft) -> None:
    """Cancels the job, whose driver then deletes its checkpoints and changelogs and ends."""
    transition, pod, driver = draft.status.transition, draft.observed.pod, draft.observed.driver
    if transition is None:
        return
    late = transition.deadline is not None and draft.now >= transition.deadline
    if pod is not None and pod.ending is not None and pod.ending.state == _CANCELED:
        if pod.ending.kept is not None and not pod.ending.kept:
            draft.record_event("CheckpointsDeleted", "Deleted the job's checkpoints and changelogs. Savepoints are kept")
            draft.step(stopping.REMOVE)
        else:
            _keep(draft, "the driver could not delete them; see its log")
        return
    if pod is None or pod.over or pod.deleting:
        _keep(draft, "the driver is not running")
        return
    if driver is None:
        if late or (draft.now - transition.since).total_seconds() >= stopping.SILENT_S:
            _keep(draft, "the driver does not respond")
            return
    else:
        operation = driver.operations.get("delete")
        if operation is None:
            draft.do(AskDriver(kind="cancel", key="delete"))
        elif operation.state == "FAILED" or late:
            _keep(draft, operation.error.message if operation.error is not None else "it took longer than spec.savepoints.timeout")
            return
    draft.requeue_after(_POLL_S)


def _keep(draft: Draft, why: str) -> None:
    last = draft.status.last_checkpoint
    where = f". The latest one is {last.path}" if last is not None else ""
    draft.record_event("CheckpointsKept", f"The job's checkpoints were not deleted: {why}{where}", warning=True)
    draft.step(stopping.REMOVE)


def _give_up(draft: Draft, why: str) -> None:
    last = draft.status.last_checkpoint
    where = f"; the latest state in storage is {last.path}" if last is not None else ""
    draft.record_event("SavepointSkipped", f"Deleting the job without a final savepoint: {why}{where}", warning=True)
    draft.step(stopping.REMOVE)
