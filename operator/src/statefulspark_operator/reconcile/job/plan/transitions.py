"""The steps of a transition: stop, remove, start, wait, rescale. Pure.

A transition is written into the status before its first step is taken, and each step is decided from the observation. So when an operator
terminates at any point, the next one continues: it observes whether the step is done.

==========  ==========================================================
deploy      start, wait
upgrade     stop, remove, start, wait
rescale     rescale; or stop, remove, start, wait
suspend     stop, remove
recover     remove, start, wait
rollback    remove, start, wait (when: see `rollback`)
==========  ==========================================================

A driver pod that terminates while it is waited for is replaced: replace, start, wait. Only the time of drivers that ran counts against the deadline.

One driver at a time: a pod is created only if none of its name exists, and the name never changes. A pod on a lost node, which may
still run, is force-deleted only after its grace period; a newer attempt then fences its driver in storage.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.job import DesiredState, StatefulSparkJobSpec, UpgradeMode
from statefulspark_operator.api.drivers import Failure, Operation, Rescale
from statefulspark_operator.api.jobs import LifecycleState, ReconciliationState, Transition, TransitionKind
from statefulspark_operator.reconcile.job.observe.observation import DriverPod
from statefulspark_operator.reconcile.job.plan import (
    failing_batches,
    last_state,
    missing_slots,
    name_conflicts,
    rollback,
    stability,
    stopping,
)
from statefulspark_operator.reconcile.job.plan.actions import ApplyChildren, AskDriver, CreateDriver, DeleteDriver
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.job.plan.initial_state import children_spec
from statefulspark_operator.reconcile.job.plan.stopping import REMOVE
from statefulspark_operator.reconcile.specs import spec_text

STOP: Final = "stop"
START: Final = "start"
WAIT: Final = "wait"
RESCALE: Final = "rescale"
REPLACE: Final = "replace"

FORCE_AFTER: Final = timedelta(seconds=60)
"""A pod that still exists this long after its grace period is on an unreachable node."""
_CREATIONS_MAX: Final = 5
"""After this many creations without an observed pod, the pod counts as lost."""
_POLL_S: Final = 1.0
_REFUSED_PAUSE_S_MAX: Final = 60.0
_REPLACE_PAUSE: Final = timedelta(seconds=60)
_REPLACE_SHARE: Final = 10
"""A pod is replaced at this fraction of the time since the transition began at the earliest, and after ``_REPLACE_PAUSE`` at the latest: the first
at once, later ones at longer intervals."""


def advance(draft: Draft) -> None:
    """Takes the next step of the transition in progress."""
    transition = draft.status.transition
    if transition is None:
        return
    {STOP: stopping.stop, REMOVE: _remove, START: _start, WAIT: _wait, REPLACE: _replace, RESCALE: _rescale}[transition.step](
        draft, transition
    )


# -- remove --------------------------------------------------------------------------------------------------------------


def _remove(draft: Draft, transition: Transition) -> None:
    """Removes the driver pod."""
    if remove_pod(draft):
        if transition.kind is TransitionKind.SUSPEND:
            _suspended(draft, transition)
        else:
            draft.step(START, deadline=None)  # earlier steps, such as a stop, do not count against the start


def _replace(draft: Draft, transition: Transition) -> None:
    """Removes a driver pod that terminated before batches ran."""
    if remove_pod(draft):
        draft.step(START, deadline=transition.deadline)


def remove_pod(draft: Draft) -> bool:
    """Deletes the driver pod. Returns True once it is gone."""
    last_state.register_last_state(draft)
    pod = draft.observed.pod
    if pod is None:
        return True
    if not pod.deleting:
        draft.do(DeleteDriver(uid=pod.uid, grace_s=pod.stop_grace_s))
    elif pod.gone_by is not None and draft.now > pod.gone_by + FORCE_AFTER:
        draft.record_event(
            "ForceDeleted",
            f"Pod {pod.name} did not terminate within its grace period and is force-deleted; any further writes by its driver are fenced",
            warning=True,
        )
        draft.do(DeleteDriver(uid=pod.uid, grace_s=0))
    draft.requeue_after(_POLL_S)
    return False


def _suspended(draft: Draft, transition: Transition) -> None:
    draft.end()
    draft.set(job_state=None, driver_pod=None, error=None)
    where = f" Its state is stored in {transition.state_path}" if transition.state_path else ""
    draft.enter(LifecycleState.SUSPENDED, "Suspended", f"The job is suspended.{where}")
    draft.record_event("Suspended", f"The job is suspended.{where}")


# -- start ---------------------------------------------------------------------------------------------------------------


def _start(draft: Draft, transition: Transition) -> None:
    """Creates the driver pod. Its spec is written into the status first."""
    spec = stopping.target_spec(draft, transition)
    if spec is None:
        draft.end()
        return
    if spec.state is DesiredState.SUSPENDED and transition.kind is not TransitionKind.ROLLBACK:
        _suspended(draft, transition)  # requested while the transition was in progress
        return
    pod = draft.observed.pod
    if pod is not None:
        if transition.kind is not TransitionKind.ROLLBACK and _is_refused(draft):
            draft.set(error=None)
        draft.step(WAIT if pod.generation == transition.generation and not pod.deleting else REMOVE)
        return
    text = spec_text(spec)
    reconciliation = draft.status.reconciliation
    if reconciliation is None or reconciliation.last_reconciled_spec != text:
        # The latest generation, which may be newer than the one the transition began with.
        generation = transition.generation if transition.kind is TransitionKind.ROLLBACK else draft.observed.generation
        _enter_folder(draft, _folder(draft, transition, spec, generation))
        draft.set(transition=transition.model_copy(update={"generation": generation, "attempts": 0, "deadline": None}))
        draft.reconciled(
            state=ReconciliationState.ROLLING_BACK if transition.kind is TransitionKind.ROLLBACK else ReconciliationState.UPGRADING,
            reconciled_at=draft.now,
            last_reconciled_generation=generation,
            last_reconciled_spec=text,
            stable_by=None,
        )
        draft.requeue_after(0)
        return
    refused = name_conflicts.refusal_of(draft)
    if refused is not None and _waits_after(draft, transition, refused):
        return
    if draft.observed.name_conflict is None and transition.attempts >= _CREATIONS_MAX and not _is_refused(draft):
        draft.end()  # it is deleted as soon as it is created; recovery decides when to create it again
        draft.requeue_after(0)
        return
    deadline = transition.deadline or draft.now + timedelta(milliseconds=spec.upgrade_timeout)
    begun = transition.model_copy(update={"attempts": transition.attempts + 1, "deadline": deadline})
    draft.set(desired_parallelism=spec.parallelism, transition=begun)
    resolved = children_spec(draft, spec)
    draft.do(ApplyChildren(spec=resolved, parallelism=spec.parallelism), CreateDriver(spec=resolved, generation=transition.generation))
    draft.requeue_after(_POLL_S)


def _is_refused(draft: Draft) -> bool:
    """True if the API server refused the pod at the last attempt, also one of an earlier operator process."""
    error = draft.status.error
    return draft.observed.refusal is not None or (error is not None and error.reason == name_conflicts.REFUSED)


def _waits_after(draft: Draft, transition: Transition, refused: Failure) -> bool:
    """Handles a refusal of the driver's pod: a job with another stable spec is rolled back after the deadline, others wait, since quotas change.

    Returns:
        False if it is time to try again.
    """
    refusal = draft.observed.refusal
    if _is_newer(draft, transition):
        draft.end()  # a correction must not wait for the pod of the old spec
        draft.requeue_after(0)
        return True
    if transition.deadline is not None and draft.now >= transition.deadline and rollback.is_possible(draft):
        rollback.roll_back_or_fail(draft, refused)
        return True
    told = f"{refused.message}. The operator retries at intervals of up to {_REFUSED_PAUSE_S_MAX:.0f} s"
    if transition.kind is not TransitionKind.ROLLBACK:
        draft.record_failure(refused, told)
    elif transition.attempts == 1:
        draft.record_event(refused.reason, told, warning=True)  # the error is that of the failed upgrade
    pause_s = min(_REFUSED_PAUSE_S_MAX, 2.0 ** min(transition.attempts, 10))
    waited_s = (draft.now - refusal.at).total_seconds() if refusal is not None else pause_s
    if waited_s < pause_s:
        draft.requeue_after(max(_POLL_S, pause_s - waited_s))
        return True
    return False


def _is_newer(draft: Draft, transition: Transition) -> bool:
    """True if the job has a newer valid spec than the transition starts."""
    return draft.observed.generation != transition.generation and draft.observed.spec is not None


def _folder(draft: Draft, transition: Transition, spec: StatefulSparkJobSpec, generation: int) -> str:
    """The job's directory in storage for this start: a new one for a stateless upgrade, that of the last stable spec for a rollback."""
    now, reconciliation = draft.status.job_id or draft.observed.uid, draft.status.reconciliation
    if transition.kind is TransitionKind.ROLLBACK:
        return (reconciliation.last_stable_job_id if reconciliation is not None else None) or now
    if transition.kind is not TransitionKind.UPGRADE or spec.upgrade_mode is not UpgradeMode.STATELESS:
        return now
    if reconciliation is not None and reconciliation.last_stable_job_id is None:
        # An older operator may have marked the job stable without recording its directory.
        draft.reconciled(last_stable_job_id=now)
    return f"{draft.observed.uid}-{generation}"


def _enter_folder(draft: Draft, folder: str) -> None:
    """Sets the job's directory. A previous one is kept in storage, but its checkpoints and key groups no longer apply."""
    if folder != (draft.status.job_id or draft.observed.uid):
        draft.set(last_checkpoint=None, max_parallelism=None, batch=None, restored_from=None)
    draft.set(job_id=folder)


# -- wait ----------------------------------------------------------------------------------------------------------------


def _wait(draft: Draft, transition: Transition) -> None:
    """Waits until batches run, or until it is clear that they will not."""
    pod, driver = draft.observed.pod, draft.observed.driver
    if _is_newer(draft, transition) and transition.kind is not TransitionKind.ROLLBACK:
        # The correction of a spec that does not start must not wait for the deadline of the old one.
        draft.end()
        draft.requeue_after(0)
        return
    if pod is None:
        draft.end()  # lost before it ran; recovery decides when to start it again
        draft.requeue_after(0)
        return
    if driver is not None and driver.runs:
        _runs(draft, transition)
        return
    if draft.observed.other_key:
        draft.step(REMOVE)  # an operator with another key has made it, and only that one could call it
        return
    if pod.over and pod.ending is None:
        _terminated(draft, transition, pod)
        return
    failure, trouble = _why_not(pod), pod.trouble or missing_slots.failure_of(draft)
    if failure is None and transition.deadline is not None and draft.now >= transition.deadline:
        failure = trouble or Failure(reason="NotReady", message=stability.NOT_READY)
    if failure is None:
        if trouble is not None and transition.kind is not TransitionKind.ROLLBACK:  # there the error is that of the failed upgrade
            draft.failed(trouble)
        draft.requeue_after(_POLL_S)
        return
    rollback.roll_back_or_fail(draft, failure)


def _terminated(draft: Draft, transition: Transition, pod: DriverPod) -> None:
    """Replaces a driver pod that terminated without a report, unless its drivers have had their time."""
    failure = Failure(reason=pod.failure.reason if pod.failure is not None else "DriverLost", message=pod.termination)
    if pod.started and transition.deadline is not None and draft.now >= transition.deadline:
        rollback.roll_back_or_fail(draft, failure)
        return
    if transition.kind is not TransitionKind.ROLLBACK:  # there the error is that of the failed upgrade
        draft.failed(failure)
    age = draft.now - pod.created_at if pod.created_at is not None else _REPLACE_PAUSE
    pause = min(_REPLACE_PAUSE, (draft.now - transition.since) / _REPLACE_SHARE) - age
    if pause > timedelta():
        draft.requeue_after(max(_POLL_S, pause.total_seconds()))
        return
    draft.record_event("DriverLost", f"{pod.termination}, before batches ran; creating a new one", warning=True)
    draft.step(REPLACE, deadline=transition.deadline if pod.started else None)


def _why_not(pod: DriverPod) -> Failure | None:
    """Reason for which the driver will not start, if that is certain."""
    if pod.ending is not None and pod.ending.state == "FAILED":
        return pod.ending.error or Failure(reason="Failed", message="The job failed. Check the driver's log")
    return None


def runs_after_all(draft: Draft) -> None:
    """Marks a failed job as running if its driver runs after all, for example because a slow node exceeded spec.upgradeTimeout."""
    pod, driver, reconciliation = draft.observed.pod, draft.observed.driver, draft.status.reconciliation
    if pod is None or pod.over or pod.deleting or driver is None or not (driver.runs and driver.works) or reconciliation is None:
        return
    kind = TransitionKind.ROLLBACK if reconciliation.state is ReconciliationState.ROLLING_BACK else TransitionKind.DEPLOY
    generation = reconciliation.last_reconciled_generation or draft.observed.generation
    _runs(draft, Transition(kind=kind, step=WAIT, since=draft.now, generation=generation))


def _runs(draft: Draft, transition: Transition) -> None:
    driver = draft.observed.driver
    draft.end()
    restored = f", restored from {driver.restored_from}" if driver is not None and driver.restored_from else ""
    if transition.kind is TransitionKind.ROLLBACK:
        rollback.rolled_back(draft, restored)
        return
    draft.reconciled(state=ReconciliationState.DEPLOYED)
    if transition.kind is not TransitionKind.RECOVER and driver is not None:
        draft.reconciled(began_batch=driver.batch)
    # A recovered driver may fail in the same way: the start time of failing batches is kept until a batch succeeds.
    error = draft.status.error
    same = transition.kind is TransitionKind.RECOVER and error is not None and error.reason == failing_batches.REASON
    if not same or (driver is not None and driver.works):
        draft.set(error=None)
    draft.enter(
        LifecycleState.RUNNING,
        _DONE[transition.kind],
        "The driver is running. The job becomes stable when a batch and a checkpoint have completed",
    )
    draft.record_event(_DONE[transition.kind], f"Running generation {transition.generation} of the spec{restored}")


_DONE: Final = {
    TransitionKind.DEPLOY: "Deployed",
    TransitionKind.UPGRADE: "Upgraded",
    TransitionKind.RESCALE: "Rescaled",
    TransitionKind.RECOVER: "Recovered",
}


# -- rescale -------------------------------------------------------------------------------------------------------------


def _rescale(draft: Draft, transition: Transition) -> None:
    """Changes the number of slots inside the running driver."""
    pod, driver, spec = draft.observed.pod, draft.observed.driver, draft.observed.spec
    wanted = transition.to_parallelism
    if pod is None or pod.over or spec is None or wanted is None or spec.parallelism != wanted or spec.state is DesiredState.SUSPENDED:
        draft.set(error=None)
        draft.end()  # plan again from the current state
        draft.requeue_after(0)
        return
    if driver is None:
        if transition.deadline is not None and draft.now >= transition.deadline:
            draft.step(STOP)
        draft.requeue_after(_POLL_S)
        return
    key = f"rescale-{transition.generation}-{transition.attempts}"
    operation = driver.operations.get(key)
    # The operation ends with the first batch after the pause, and then the driver knows how long it was.
    under_way = operation is not None and operation.state == "RUNNING" and (transition.deadline is None or draft.now < transition.deadline)
    if driver.parallelism == wanted and driver.runs and not under_way:
        # The ConfigMap first: a driver restarted by the kubelet reads its parallelism there.
        draft.do(ApplyChildren(spec=children_spec(draft, spec), parallelism=wanted, changed_only=True))
        draft.reconciled(
            last_reconciled_spec=spec_text(spec), last_reconciled_generation=draft.observed.generation, reconciled_at=draft.now
        )
        draft.set(error=None)
        draft.end()
        draft.enter(LifecycleState.RUNNING, "Rescaled", f"Running with {wanted} slots")
        draft.record_event("Rescaled", f"Rescaled from {transition.from_parallelism} to {wanted} slots{_took(driver.last_rescale, wanted)}")
        return
    if operation is None:
        draft.do(AskDriver(kind="rescale", key=key, parallelism=wanted))
    elif operation.state == "FAILED":
        _rescale_failed(draft, transition, operation)
        return
    draft.requeue_after(_POLL_S)


def _took(rescale: Rescale | None, wanted: int) -> str:
    """Cost of a rescale in words; empty if the driver reports none, or another one."""
    if rescale is None or rescale.to_parallelism != wanted:
        return ""
    paused = f", paused for {rescale.pause_ms / 1000:.1f} s" if rescale.pause_ms is not None else ""
    return f": {rescale.fetch_bytes / (1 << 20):,.1f} MiB of state restored{paused}"


def _rescale_failed(draft: Draft, transition: Transition, operation: Operation) -> None:
    """Retries later if a resource was unavailable, such as capacity for executors, while the job keeps running. Otherwise restarts the driver."""
    failure = operation.error or Failure(reason="Unknown", message="the driver gave no reason")
    if failure.reason != "Unavailable":
        draft.record_event(
            "RescaleInPlaceFailed", f"Rescaling in place failed; restarting the driver instead: {failure.message}", warning=True
        )
        draft.step(STOP)
        return
    told = f"Rescaling failed; the job keeps running with its current parallelism and the operator will retry: {failure.message}"
    draft.record_failure(Failure(reason="RescaleFailed", message=failure.message), told)
    stopping.again_later(draft, transition)
