"""The steps of what the operator has begun: stop, remove, start, wait, rescale. Pure.

A transition is written into the status before its first step is taken, and each step is decided from what is seen, so an operator that
ends anywhere is continued by the next one: it looks again and finds the step done or not.

==========  ==========================================================
deploy      start, wait
upgrade     stop, remove, start, wait
rescale     rescale; or stop, remove, start, wait
suspend     stop, remove
recover     remove, start, wait
rollback    remove, start, wait
==========  ==========================================================

One driver at a time: a pod is made only when none of its name is there, and the name does not change. A pod on a lost node, which may
still run, is deleted by force only after its grace; its driver then can write nothing that is taken up: a newer attempt fences it in storage.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.job import DesiredState, StatefulSparkJobSpec, UpgradeMode
from statefulspark_operator.api.drivers import Failure, Operation
from statefulspark_operator.api.jobs import LifecycleState, ReconciliationState, Transition, TransitionKind
from statefulspark_operator.reconcile import last_state
from statefulspark_operator.reconcile.actions import ApplyChildren, AskDriver, CreateDriver, DeleteDriver
from statefulspark_operator.reconcile.initial import children_spec
from statefulspark_operator.reconcile.lifecycle import Draft
from statefulspark_operator.reconcile.observation import DriverPod
from statefulspark_operator.reconcile.specs import checked_spec, spec_text

STOP: Final = "stop"
REMOVE: Final = "remove"
START: Final = "start"
WAIT: Final = "wait"
RESCALE: Final = "rescale"

STOP_GRACE_S: Final = 120
"""How long a driver that gets SIGTERM has for its last checkpoint."""
FORCE_AFTER: Final = timedelta(seconds=60)
"""A pod that is still there this long after its grace is on a node that does not answer."""
SILENT_S: Final = 30.0
"""A driver that is to be stopped and does not answer this long is stopped by deleting its pod."""
_CREATIONS_MAX: Final = 5
"""A pod that was made so often and never seen is lost as soon as it is made."""
_POLL_S: Final = 1.0
_RETRY_S: Final = 10.0


def advance(draft: Draft) -> None:
    """Take the next step of the transition under way."""
    transition = draft.status.transition
    if transition is None:
        return
    {STOP: _stop, REMOVE: _remove, START: _start, WAIT: _wait, RESCALE: _rescale}[transition.step](draft, transition)


def target_spec(draft: Draft, transition: Transition) -> StatefulSparkJobSpec | None:
    """The spec that the transition leads to: for a rollback the last stable one, for a recovery that which ran, else the newest valid one."""
    reconciliation = draft.status.reconciliation
    if transition.kind is TransitionKind.ROLLBACK and reconciliation is not None:
        return checked_spec(reconciliation.last_stable_spec)
    if draft.seen.spec is None or transition.kind is TransitionKind.RECOVER:
        before = checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None
        return before or draft.seen.spec
    return draft.seen.spec


def wants_savepoint(spec: StatefulSparkJobSpec) -> bool:
    """Whether stopping the job takes a savepoint."""
    return spec.upgrade_mode is UpgradeMode.SAVEPOINT and spec.checkpointing.savepoint_dir is not None


# -- stop ----------------------------------------------------------------------------------------------------------------


def _stop(draft: Draft, transition: Transition) -> None:
    """Have the driver end with its state."""
    pod, driver, spec = draft.seen.pod, draft.seen.driver, target_spec(draft, transition)
    if pod is None or pod.over or pod.deleting or pod.ending is not None:
        draft.step(REMOVE, state_path=_state_path(draft, pod))
        return
    savepoint = spec is not None and (wants_savepoint(spec) or last_state.needs_savepoint(draft, spec))
    if driver is None:
        waited_s = (draft.now - transition.since).total_seconds()
        if waited_s >= SILENT_S or pod.trouble is not None:
            if pod.trouble is None and spec is not None and last_state.refuses(draft, spec):
                draft.look_again(_RETRY_S)
                return
            _last_state(draft, "The driver does not answer", savepoint=savepoint)
        else:
            draft.look_again(_POLL_S)
        return
    stateless = spec is not None and spec.upgrade_mode is UpgradeMode.STATELESS and transition.kind is TransitionKind.UPGRADE
    key = f"{transition.kind}-{transition.generation}-{transition.attempts}"
    operation = driver.operations.get(key)
    if operation is not None and operation.state == "FAILED":
        if driver.state == "RUNNING":
            _stop_failed(draft, transition, operation)
        else:
            _last_state(draft, f"The driver is {driver.state} and could not stop with its state", savepoint=savepoint)
        return
    if operation is not None and operation.state == "SUCCEEDED":
        draft.step(REMOVE, state_path=operation.snapshot.path if operation.snapshot is not None else None)
        return
    if operation is None:
        draft.do(AskDriver(kind="cancel" if stateless else "stop", key=key, savepoint=savepoint))
    draft.look_again(_POLL_S)


def _last_state(draft: Draft, why: str, *, savepoint: bool) -> None:
    """Go on from what is in storage, as Flink's operator does with a job that is not healthy."""
    if savepoint:
        draft.tell("LastStateFallback", f"{why}, so no savepoint is taken; the job goes on from its last state in storage", warning=True)
    draft.step(REMOVE)


def _stop_failed(draft: Draft, transition: Transition, operation: Operation) -> None:
    """The job runs on; ask again, later each time."""
    failure = operation.error or Failure(reason="Unknown", message="the driver does not say why")
    told = f"The job could not be stopped with its state and runs on: {failure.message}"
    draft.fail_and_tell(Failure(reason="StopFailed", message=failure.message), told)
    _again_later(draft, transition)


def _again_later(draft: Draft, transition: Transition) -> None:
    """Make another attempt, later each time."""
    pause_s = min(300.0, _RETRY_S * 2**transition.attempts)
    since_s = (draft.now - transition.since).total_seconds()
    # The pauses so far add up to the time since the transition began.
    if since_s >= _RETRY_S * (2 ** min(transition.attempts + 1, 5) - 1) + max(0, transition.attempts - 4) * 300.0:
        draft.set(transition=transition.model_copy(update={"attempts": transition.attempts + 1}))
        draft.look_again(0)
    else:
        draft.look_again(pause_s)


def _state_path(draft: Draft, pod: DriverPod | None) -> str | None:
    if pod is not None and pod.ending is not None and pod.ending.path is not None:
        return pod.ending.path
    before = draft.status.transition
    return before.state_path if before is not None else None


# -- remove --------------------------------------------------------------------------------------------------------------


def _remove(draft: Draft, transition: Transition) -> None:
    """Have no driver's pod."""
    if remove_pod(draft):
        if transition.kind is TransitionKind.SUSPEND:
            _suspended(draft, transition)
        else:
            draft.step(START)


def remove_pod(draft: Draft) -> bool:
    """Delete the driver's pod; True when it is gone."""
    last_state.make_known(draft)
    pod = draft.seen.pod
    if pod is None:
        return True
    if not pod.deleting:
        draft.do(DeleteDriver(uid=pod.uid, grace_s=STOP_GRACE_S))
    elif pod.gone_by is not None and draft.now > pod.gone_by + FORCE_AFTER:
        draft.tell(
            "ForceDeleted",
            f"Pod {pod.name} did not end in time and is deleted by force; storage refuses what it still writes",
            warning=True,
        )
        draft.do(DeleteDriver(uid=pod.uid, grace_s=0))
    draft.look_again(_POLL_S)
    return False


def _suspended(draft: Draft, transition: Transition) -> None:
    draft.end()
    draft.set(job_state=None, driver_pod=None, error=None)
    where = f" Its state is in {transition.state_path}" if transition.state_path else ""
    draft.enter(LifecycleState.SUSPENDED, "Suspended", f"Stopped as asked.{where}")
    draft.tell("Suspended", f"The job is stopped.{where}")


# -- start ---------------------------------------------------------------------------------------------------------------


def _start(draft: Draft, transition: Transition) -> None:
    """Make the driver's pod. What it is made from is in the status before it is made."""
    spec = target_spec(draft, transition)
    if spec is None:
        draft.end()
        return
    if spec.state is DesiredState.SUSPENDED and transition.kind is not TransitionKind.ROLLBACK:
        _suspended(draft, transition)  # asked for while the transition was under way
        return
    pod = draft.seen.pod
    if pod is not None:
        draft.step(WAIT if pod.generation == transition.generation and not pod.deleting else REMOVE)
        return
    text = spec_text(spec)
    reconciliation = draft.status.reconciliation
    if reconciliation is None or reconciliation.last_reconciled_spec != text:
        stateless = (
            transition.kind is TransitionKind.UPGRADE and spec.upgrade_mode is UpgradeMode.STATELESS and draft.status.job_id is not None
        )
        # The newest generation, which may be later than the one the transition began with.
        generation = transition.generation if transition.kind is TransitionKind.ROLLBACK else draft.seen.generation
        # A job that starts without its state gets a new folder: nothing of the old one is deleted.
        draft.set(
            job_id=f"{draft.seen.uid}-{generation}" if stateless else draft.status.job_id or draft.seen.uid,
            transition=transition.model_copy(update={"generation": generation}),
        )
        draft.reconciled(
            state=ReconciliationState.ROLLING_BACK if transition.kind is TransitionKind.ROLLBACK else ReconciliationState.UPGRADING,
            reconciled_at=draft.now,
            last_reconciled_generation=generation,
            last_reconciled_spec=text,
            stable_by=None,
        )
        draft.look_again(0)
        return
    if transition.attempts >= _CREATIONS_MAX:
        draft.end()  # it goes as soon as it is made; how soon it is made again is decided as for any lost driver
        draft.look_again(0)
        return
    # What was waited for until now, such as a stop, does not count against the start.
    deadline = transition.deadline if transition.attempts else draft.now + timedelta(milliseconds=spec.upgrade_timeout)
    begun = transition.model_copy(update={"attempts": transition.attempts + 1, "deadline": deadline})
    draft.set(desired_parallelism=spec.parallelism, transition=begun)
    manifest = children_spec(draft, spec)
    draft.do(ApplyChildren(spec=manifest, parallelism=spec.parallelism), CreateDriver(spec=manifest, generation=transition.generation))
    draft.look_again(_POLL_S)


# -- wait ----------------------------------------------------------------------------------------------------------------


def _wait(draft: Draft, transition: Transition) -> None:
    """Batches run, or it is clear that they will not."""
    pod, driver = draft.seen.pod, draft.seen.driver
    newer = draft.seen.generation != transition.generation and draft.seen.spec is not None
    if newer and transition.kind is not TransitionKind.ROLLBACK:
        # A correction of a spec that does not start must not wait for the old one's deadline.
        draft.end()
        draft.look_again(0)
        return
    if pod is None:
        draft.end()  # lost before it ran; how soon it is started again is decided as for any lost driver
        draft.look_again(0)
        return
    if driver is not None and driver.runs:
        _runs(draft, transition)
        return
    failure = _why_not(pod)
    if failure is None and transition.deadline is not None and draft.now >= transition.deadline:
        failure = pod.trouble or Failure(
            reason="NotReady", message="The driver did not run batches in time (spec.upgradeTimeout); its log says why"
        )
    if failure is None:
        if pod.trouble is not None:
            draft.failed(pod.trouble)
        draft.look_again(_POLL_S)
        return
    start_failed(draft, failure)


def _why_not(pod: DriverPod) -> Failure | None:
    """Why it will not start, when that is clear."""
    if pod.ending is not None and pod.ending.state == "FAILED":
        return pod.ending.error or Failure(reason="Failed", message="The job failed; the driver's log says why")
    return None


def start_failed(draft: Draft, failure: Failure) -> None:
    """Go back to the last stable spec, or stay as it is when there is none."""
    reconciliation, transition = draft.status.reconciliation, draft.status.transition
    spec = draft.seen.spec
    draft.failed(failure)
    stable = reconciliation.last_stable_spec if reconciliation is not None else None
    rolls_back = (
        stable is not None
        and reconciliation is not None
        and stable != reconciliation.last_reconciled_spec
        and (spec is None or spec.rollback)
        and (transition is None or transition.kind is not TransitionKind.ROLLBACK)
    )
    if not rolls_back:
        draft.end()
        draft.enter(LifecycleState.FAILED, failure.reason, failure.message)
        draft.tell("Failed", failure.message, warning=True)
        return
    draft.tell("RollingBack", f"The upgrade failed and the last stable spec is started again: {failure.message}", warning=True)
    draft.begin(TransitionKind.ROLLBACK, REMOVE, within=timedelta(minutes=10))
    draft.reconciled(state=ReconciliationState.ROLLING_BACK)
    draft.enter(LifecycleState.ROLLING_BACK, failure.reason, failure.message)


def runs_after_all(draft: Draft) -> None:
    """Take a job that was given up for one that runs, when its driver does: a slow node takes longer than spec.upgradeTimeout."""
    pod, driver, reconciliation = draft.seen.pod, draft.seen.driver, draft.status.reconciliation
    if pod is None or pod.over or pod.deleting or driver is None or not driver.runs or reconciliation is None:
        return
    kind = TransitionKind.ROLLBACK if reconciliation.state is ReconciliationState.ROLLING_BACK else TransitionKind.DEPLOY
    generation = reconciliation.last_reconciled_generation or draft.seen.generation
    _runs(draft, Transition(kind=kind, step=WAIT, since=draft.now, generation=generation))


def _runs(draft: Draft, transition: Transition) -> None:
    driver = draft.seen.driver
    draft.end()
    restored = f", restored from {driver.restored_from}" if driver is not None and driver.restored_from else ""
    if transition.kind is TransitionKind.ROLLBACK:
        draft.reconciled(state=ReconciliationState.ROLLED_BACK)
        draft.enter(LifecycleState.ROLLED_BACK, "RolledBack", "Runs with the last stable spec; correct the new one to try again")
        draft.tell("RolledBack", f"The last stable spec runs again{restored}")
        return
    draft.reconciled(state=ReconciliationState.DEPLOYED)
    if transition.kind is not TransitionKind.RECOVER and driver is not None:
        draft.reconciled(began_batch=driver.batch)
    draft.set(error=None)
    draft.enter(LifecycleState.RUNNING, _DONE[transition.kind], "Batches run; stable once a checkpoint is complete")
    draft.tell(_DONE[transition.kind], f"The job runs with generation {transition.generation} of its spec{restored}")


_DONE: Final = {
    TransitionKind.DEPLOY: "Deployed",
    TransitionKind.UPGRADE: "Upgraded",
    TransitionKind.RESCALE: "Rescaled",
    TransitionKind.RECOVER: "Recovered",
}


# -- rescale -------------------------------------------------------------------------------------------------------------


def _rescale(draft: Draft, transition: Transition) -> None:
    """Another number of slots inside the running driver."""
    pod, driver, spec = draft.seen.pod, draft.seen.driver, draft.seen.spec
    wanted = transition.to_parallelism
    if pod is None or pod.over or spec is None or wanted is None or spec.parallelism != wanted or spec.state is DesiredState.SUSPENDED:
        draft.set(error=None)
        draft.end()  # what there is now decides anew
        draft.look_again(0)
        return
    if driver is None:
        if transition.deadline is not None and draft.now >= transition.deadline:
            draft.step(STOP)
        draft.look_again(_POLL_S)
        return
    if driver.parallelism == wanted and driver.runs:
        # The config map first: a driver that the node starts again reads its parallelism there.
        draft.do(ApplyChildren(spec=children_spec(draft, spec), parallelism=wanted, changed_only=True))
        draft.reconciled(last_reconciled_spec=spec_text(spec), last_reconciled_generation=draft.seen.generation, reconciled_at=draft.now)
        draft.set(error=None)
        draft.end()
        draft.enter(LifecycleState.RUNNING, "Rescaled", f"Runs with {wanted} slots")
        draft.tell("Rescaled", f"The job runs with {wanted} slots instead of {transition.from_parallelism}")
        return
    key = f"rescale-{transition.generation}-{transition.attempts}"
    operation = driver.operations.get(key)
    if operation is None:
        draft.do(AskDriver(kind="rescale", key=key, parallelism=wanted))
    elif operation.state == "FAILED":
        _rescale_failed(draft, transition, operation)
        return
    draft.look_again(_POLL_S)


def _rescale_failed(draft: Draft, transition: Transition, operation: Operation) -> None:
    """Try again later when something was not to be had, such as room for executors: the job runs on. Else start the driver anew."""
    failure = operation.error or Failure(reason="Unknown", message="the driver does not say why")
    if failure.reason != "Unavailable":
        draft.tell(
            "RescaleInPlaceFailed", f"The driver could not rescale in place and is started again instead: {failure.message}", warning=True
        )
        draft.step(STOP)
        return
    told = f"The job runs on as it was, and is rescaled when that is possible: {failure.message}"
    draft.fail_and_tell(Failure(reason="RescaleFailed", message=failure.message), told)
    _again_later(draft, transition)
