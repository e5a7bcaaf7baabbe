"""A job with nothing under way: does what runs match the spec, and is it well? Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.job import DesiredState, RescaleMode, StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import SLOTS_MAX, LifecycleState, ReconciliationState, TransitionKind
from statefulspark_operator.api.snapshots import SnapshotTrigger
from statefulspark_operator.reconcile import key_groups, proof, transitions
from statefulspark_operator.reconcile.actions import ApplyChildren, TakeSnapshot
from statefulspark_operator.reconcile.changes import Changes, Cost, changes_between
from statefulspark_operator.reconcile.initial import children_spec, choose_initial_state
from statefulspark_operator.reconcile.lifecycle import Draft
from statefulspark_operator.reconcile.observation import DriverPod
from statefulspark_operator.reconcile.specs import checked_spec, spec_text

_RECOVERY_PAUSE_S_MAX: Final = 300.0
_UNPROVED_S: Final = 2.0
_UNPROVED_S_MAX: Final = 15.0
_STOPPED: Final = frozenset({LifecycleState.SUSPENDED, LifecycleState.FAILED, LifecycleState.FINISHED})


def look(draft: Draft) -> None:
    """Begin what the spec asks for; else look after what runs."""
    reconciliation = draft.status.reconciliation
    before = checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None
    spec = draft.seen.spec
    if spec is not None and _begin(draft, before, spec):
        return
    if before is None:
        return
    if draft.status.lifecycle_state in _STOPPED:
        if draft.status.lifecycle_state is LifecycleState.FAILED:
            transitions.runs_after_all(draft)
        return
    _look_after(draft, before)


def refused_changes(before: StatefulSparkJobSpec | None, after: StatefulSparkJobSpec) -> Changes | None:
    """The changes when they hold one that a job cannot live through; else None."""
    if before is None:
        return None
    changes = changes_between(before, after)
    return changes if changes.cost is Cost.REJECT else None


def _begin(draft: Draft, before: StatefulSparkJobSpec | None, spec: StatefulSparkJobSpec) -> bool:
    """Begin a transition if the spec asks for one."""
    state = draft.status.lifecycle_state
    within = timedelta(milliseconds=spec.upgrade_timeout)
    draft.set(desired_parallelism=spec.parallelism)
    if spec.state is DesiredState.SUSPENDED:
        return _suspend(draft, spec, within)
    if before is None:
        if not choose_initial_state(draft, spec):
            return False
        draft.enter(LifecycleState.DEPLOYING, "Deploying", "The job is started for the first time")
        draft.tell("Deploying", "The job is started for the first time")
        draft.begin(TransitionKind.DEPLOY, transitions.START, within=within)
        return True
    if refused_changes(before, spec) is not None:
        return False
    if state is LifecycleState.SUSPENDED:
        draft.enter(LifecycleState.DEPLOYING, "Resuming", "The job goes on from its state")
        draft.tell("Resuming", "The job goes on from its state")
        draft.begin(TransitionKind.DEPLOY, transitions.REMOVE, within=within)
        return True
    if _is_rolled_back(draft):
        return False
    changes = changes_between(before, spec)
    if changes.cost is Cost.UPGRADE:
        draft.enter(LifecycleState.UPGRADING, "SpecChanged", f"Changed: {changes.paths()}")
        draft.tell("SpecChanged", f"The job is upgraded ({spec.upgrade_mode}); changed: {changes.paths()}")
        draft.begin(TransitionKind.UPGRADE, transitions.STOP, within=within)
        return True
    if changes.cost is Cost.SCALE and state not in _STOPPED:
        _begin_rescale(draft, before, spec, within)
        return True
    if changes.cost is not None and not _waits_for_snapshot(draft, before, spec):
        # Nothing that runs depends on these fields; they count from now on.
        draft.reconciled(last_reconciled_spec=spec_text(spec), last_reconciled_generation=draft.seen.generation, reconciled_at=draft.now)
        if draft.seen.pod is not None:
            draft.do(ApplyChildren(spec=children_spec(draft, spec), parallelism=spec.parallelism, changed_only=True))
    return False


def _suspend(draft: Draft, spec: StatefulSparkJobSpec, within: timedelta) -> bool:
    state = draft.status.lifecycle_state
    if draft.seen.pod is None:
        if state is not LifecycleState.SUSPENDED:
            draft.enter(LifecycleState.SUSPENDED, "Suspended", "Not started, as the spec asks")
        return True
    mode = "a savepoint" if transitions.wants_savepoint(spec) else "its last state"
    draft.enter(LifecycleState.SUSPENDING, "Suspending", f"The job is stopped with {mode}")
    draft.tell("Suspending", f"The job is stopped with {mode}")
    draft.begin(TransitionKind.SUSPEND, transitions.STOP, within=within)
    return True


def _is_rolled_back(draft: Draft) -> bool:
    """Whether this very generation was tried and has failed."""
    reconciliation = draft.status.reconciliation
    return (
        reconciliation is not None
        and reconciliation.state is ReconciliationState.ROLLED_BACK
        and reconciliation.last_reconciled_generation == draft.seen.generation
    )


def _begin_rescale(draft: Draft, before: StatefulSparkJobSpec, spec: StatefulSparkJobSpec, within: timedelta) -> None:
    slots = f"from {before.parallelism} to {spec.parallelism} slots"
    pod = draft.seen.pod
    in_place = spec.rescale_mode is RescaleMode.IN_PLACE and before.parallelism != spec.parallelism and pod is not None and not pod.over
    groups = draft.status.max_parallelism or before.max_parallelism
    found = key_groups.moves(groups, before.parallelism, spec.parallelism)
    how = "inside its driver" if in_place else "with a new driver"
    draft.enter(LifecycleState.RESCALING, "SpecChanged", f"Rescaled {slots}")
    draft.tell("Rescaling", f"The job is rescaled {slots}, {how}; {key_groups.moved(found)} of {groups} key groups change their slot")
    draft.begin(
        TransitionKind.RESCALE,
        transitions.RESCALE if in_place else transitions.STOP,
        within=within,
        from_parallelism=before.parallelism,
        to_parallelism=spec.parallelism,
        moved_key_groups=key_groups.moved(found),
        moves=found[:SLOTS_MAX],
    )


def _waits_for_snapshot(draft: Draft, before: StatefulSparkJobSpec, spec: StatefulSparkJobSpec) -> bool:
    """A new savepointNonce counts as acted on when its StateSnapshot exists."""
    if spec.savepoint_nonce is None or spec.savepoint_nonce == before.savepoint_nonce:
        return False
    name = f"{draft.seen.name}-nonce-{spec.savepoint_nonce}"
    if any(snapshot.name == name for snapshot in draft.seen.snapshots):
        return False
    draft.do(TakeSnapshot(name=name, trigger=SnapshotTrigger.MANUAL))
    draft.look_again(1.0)
    return True


# -- what runs -----------------------------------------------------------------------------------------------------------


def _look_after(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    pod, driver = draft.seen.pod, draft.seen.driver
    if pod is None:
        _recover(draft, spec, "DriverLost", "The driver's pod is gone")
    elif pod.ending is not None:
        _ended(draft, spec, pod)
    elif pod.over:
        memory = " It was ended for lack of memory: raise spec.driver.memory" if pod.oom_killed else ""
        _recover(draft, spec, "DriverLost", f"The driver's pod has ended.{memory}")
    elif pod.deleting:
        draft.look_again(1.0)
    elif driver is not None and driver.state == "RUNNING":
        _runs(draft, spec)
    else:
        draft.look_again(2.0)
    proof.demand(draft, spec)


def _ended(draft: Draft, spec: StatefulSparkJobSpec, pod: DriverPod) -> None:
    """The driver says how the job ended."""
    ending = pod.ending
    if ending is None:
        return
    if ending.state == "FINISHED":
        draft.enter(LifecycleState.FINISHED, "Finished", "The sources have nothing more")
        draft.tell("Finished", "The sources have nothing more")
        return
    if ending.state == "FAILED":
        failure = ending.error or Failure(reason="Failed", message="The job failed; the driver's log says why")
        transitions.start_failed(draft, failure)
        return
    # Stopped past the operator (a signal, the command line): the spec still says running.
    _recover(draft, spec, "DriverStopped", "The driver was stopped, but the spec says running")


def _recover(draft: Draft, spec: StatefulSparkJobSpec, reason: str, message: str) -> None:
    """Start the driver again from the newest state in storage; later each time, as long as it does not stay up."""
    pause_s = 0.0 if draft.status.restarts == 0 else min(_RECOVERY_PAUSE_S_MAX, 2.0 ** min(draft.status.restarts, 10))
    last = draft.status.restarted_at
    if last is not None and (waited_s := (draft.now - last).total_seconds()) < pause_s:
        draft.look_again(pause_s - waited_s)
        return
    where = f" It goes on from {draft.seen.stored.path} and the batches since" if draft.seen.stored is not None else ""
    draft.set(restarts=draft.status.restarts + 1, restarted_at=draft.now)
    draft.enter(LifecycleState.RECOVERING, reason, message)
    draft.tell(reason, f"{message}.{where}", warning=True)
    draft.begin(TransitionKind.RECOVER, transitions.REMOVE, within=timedelta(milliseconds=spec.upgrade_timeout))


def _runs(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    driver, since = draft.seen.driver, draft.status.lifecycle_since
    if not draft.seen.children_intact:
        draft.do(ApplyChildren(spec=children_spec(draft, spec), parallelism=spec.parallelism, repair=True))
    if driver is None or since is None:
        return
    if draft.status.lifecycle_state is LifecycleState.ROLLED_BACK:
        return
    checkpoint = driver.last_checkpoint
    running = draft.status.lifecycle_state is LifecycleState.RUNNING
    if running and checkpoint is not None and checkpoint.completed_at > since and proof.proves(draft, checkpoint):
        reconciliation = draft.status.reconciliation
        draft.enter(LifecycleState.STABLE, "CheckpointCompleted", f"Checkpoint {checkpoint.id} is complete")
        draft.set(restarts=0, error=None)
        if reconciliation is not None:
            draft.reconciled(
                state=ReconciliationState.DEPLOYED,
                stable_by=None,
                last_stable_spec=reconciliation.last_reconciled_spec,
                last_stable_generation=reconciliation.last_reconciled_generation,
            )
    elif draft.status.lifecycle_state is not LifecycleState.STABLE:
        draft.enter(LifecycleState.RUNNING, "Running", "Batches run; stable once a checkpoint is complete")
        # Checkpoints come seldom beside this; a tenth of the wait is lost at most, and many jobs that start together are not all asked.
        waited_s = (draft.now - since).total_seconds()
        draft.look_again(min(_UNPROVED_S_MAX, max(_UNPROVED_S, waited_s / 10)))
