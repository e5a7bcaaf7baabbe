"""A job without a transition under way: begin what its spec asks for, otherwise supervise what runs. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import LifecycleState, ReconciliationState, TransitionKind
from statefulspark_operator.reconcile.job.observe.observation import DriverPod
from statefulspark_operator.reconcile.job.plan import failing_batches, rollback, stability, stopping, transitions
from statefulspark_operator.reconcile.job.plan.actions import ApplyChildren, DeleteDriver, DeleteExecutor
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.job.plan.initial_state import children_spec
from statefulspark_operator.reconcile.job.plan.spec_changes import STOPPED, begin_transition
from statefulspark_operator.reconcile.specs import checked_spec

_RECOVERY_PAUSE_S_MAX: Final = 300.0
_UNPROVED_S: Final = 2.0
_UNPROVED_S_MAX: Final = 15.0


def supervise(draft: Draft) -> None:
    """Begins the transition that the spec requires; otherwise supervises what runs."""
    reconciliation = draft.status.reconciliation
    before = checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None
    spec = draft.observed.spec
    if spec is not None and begin_transition(draft, before, spec):
        return
    if before is None:
        return
    if draft.status.lifecycle_state in STOPPED:
        if draft.status.lifecycle_state is LifecycleState.FAILED:
            transitions.runs_after_all(draft)
        if failing_batches.given_up(draft):
            _keep_trying(draft, before)
        return
    _check_running(draft, before)


def _check_running(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    pod, driver = draft.observed.pod, draft.observed.driver
    if pod is None:
        _recover(draft, spec, "DriverLost", "The driver pod no longer exists")
    elif pod.ending is not None:
        _ended(draft, spec, pod)
    elif pod.over:
        _recover(draft, spec, "DriverLost", pod.termination)
    elif pod.deleting:
        draft.requeue_after(1.0)
    elif draft.observed.other_key:
        _take_new_secrets(draft, spec, pod)
    elif driver is not None and driver.state == "RUNNING":
        _runs(draft, spec)
        failing_batches.watch(draft, spec)
    else:
        draft.requeue_after(2.0)
    stability.demand(draft, spec)


def _take_new_secrets(draft: Draft, spec: StatefulSparkJobSpec, pod: DriverPod) -> None:
    """The driver does not know the operator any more, nor new executors the driver: it goes on with new Secrets, once they are there."""
    if draft.observed.name_conflict is None:
        draft.record_event(
            "SecretsReplaced", "The driver uses Secrets created with a different operator key; restarting it with new Secrets", warning=True
        )
    draft.do(ApplyChildren(spec=children_spec(draft, spec), parallelism=spec.parallelism))
    draft.do(DeleteDriver(uid=pod.uid, grace_s=pod.stop_grace_s))
    draft.requeue_after(1.0)


def _keep_trying(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Supervises a job that failed because of its batches: the driver keeps retrying, and the cause may disappear."""
    pod = draft.observed.pod
    if pod is None:
        _recover(draft, spec, "DriverLost", "The driver pod no longer exists")
    elif pod.ending is not None:
        _ended(draft, spec, pod)
    else:
        failing_batches.watch(draft, spec)


def _ended(draft: Draft, spec: StatefulSparkJobSpec, pod: DriverPod) -> None:
    """Handles a driver that has reported how the job ended."""
    ending = pod.ending
    if ending is None:
        return
    if ending.state == "FINISHED":
        draft.enter(LifecycleState.FINISHED, "Finished", "All sources are exhausted")
        draft.record_event("Finished", "All sources are exhausted")
        return
    if ending.state == "FAILED":
        failure = ending.error or Failure(reason="Failed", message="The job failed. Check the driver's log")
        rollback.roll_back_or_fail(draft, failure)
        return
    # Stopped by a signal or the command line, although spec.state is running.
    _recover(draft, spec, "DriverStopped", "The driver was stopped, but spec.state is running")


def _recover(draft: Draft, spec: StatefulSparkJobSpec, reason: str, message: str) -> None:
    """Restarts the driver from the latest state, with exponential backoff until it stays up."""
    pause_s = 0.0 if draft.status.restarts == 0 else min(_RECOVERY_PAUSE_S_MAX, 2.0 ** min(draft.status.restarts, 10))
    last = draft.status.restarted_at
    if last is not None and (waited_s := (draft.now - last).total_seconds()) < pause_s:
        draft.requeue_after(pause_s - waited_s)
        return
    last_checkpoint = draft.status.last_checkpoint
    where = f" The last known checkpoint is {last_checkpoint.path}" if last_checkpoint is not None else ""
    draft.set(restarts=draft.status.restarts + 1, restarted_at=draft.now)
    draft.enter(LifecycleState.RECOVERING, reason, message)
    draft.record_event(reason, f"{message}.{where}", warning=True)
    draft.begin(TransitionKind.RECOVER, stopping.REMOVE, within=timedelta(milliseconds=spec.upgrade_timeout))


def _runs(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    driver, since = draft.observed.driver, draft.status.lifecycle_since
    if not draft.observed.children_intact:
        draft.do(ApplyChildren(spec=children_spec(draft, spec), parallelism=spec.parallelism, repair=True))
    for dead in draft.observed.dead_executors:
        draft.do(DeleteExecutor(pod=dead.pod, uid=dead.uid))
    if driver is None or since is None:
        return
    if draft.status.lifecycle_state is LifecycleState.ROLLED_BACK:
        return
    checkpoint = driver.last_checkpoint
    running = draft.status.lifecycle_state is LifecycleState.RUNNING
    if running and checkpoint is not None and checkpoint.completed_at > since and stability.proves(draft, checkpoint):
        reconciliation = draft.status.reconciliation
        draft.enter(LifecycleState.STABLE, "CheckpointCompleted", f"Checkpoint {checkpoint.id} completed")
        draft.set(restarts=0, error=None)
        if reconciliation is not None:
            draft.reconciled(
                state=ReconciliationState.DEPLOYED,
                stable_by=None,
                last_stable_spec=reconciliation.last_reconciled_spec,
                last_stable_generation=reconciliation.last_reconciled_generation,
                last_stable_job_id=draft.status.job_id,
            )
    elif draft.status.lifecycle_state is not LifecycleState.STABLE:
        draft.enter(
            LifecycleState.RUNNING, "Running", "The driver is running. The job becomes stable when a batch and a checkpoint have completed"
        )
        # Checkpoints come seldom beside this; a tenth of the wait is lost at most, and many jobs that start together are not all asked.
        waited_s = (draft.now - since).total_seconds()
        draft.requeue_after(min(_UNPROVED_S_MAX, max(_UNPROVED_S, waited_s / 10)))
