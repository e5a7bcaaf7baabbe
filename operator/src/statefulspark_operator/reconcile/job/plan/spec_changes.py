"""Decides which transition a spec change requires, if any. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.changes import Cost, dearest, named, refusal, spec_changes
from statefulspark.config.job import DesiredState, RescaleMode, StatefulSparkJobSpec
from statefulspark.config.kubernetes.local_storage import storage_warnings
from statefulspark_operator.api.jobs import SLOTS_MAX, LifecycleState, ReconciliationState, TransitionKind
from statefulspark_operator.api.snapshots import SnapshotTrigger
from statefulspark_operator.reconcile.job.plan import failing_batches, key_group_moves, stopping, transitions
from statefulspark_operator.reconcile.job.plan.actions import ApplyChildren, TakeSnapshot
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.job.plan.initial_state import children_spec, choose_initial_state
from statefulspark_operator.reconcile.specs import spec_text

STOPPED: Final = frozenset({LifecycleState.SUSPENDED, LifecycleState.FAILED, LifecycleState.FINISHED})


def begin_transition(draft: Draft, before: StatefulSparkJobSpec | None, spec: StatefulSparkJobSpec) -> bool:
    """Begins the transition that the spec requires. Returns False if it requires none."""
    state = draft.status.lifecycle_state
    within = timedelta(milliseconds=spec.upgrade_timeout)
    draft.set(desired_parallelism=spec.parallelism)
    if spec.state is DesiredState.SUSPENDED:
        return _suspend(draft, spec, within)
    if before is None:
        if not choose_initial_state(draft, spec):
            return False
        draft.enter(LifecycleState.DEPLOYING, "Deploying", "Starting the job for the first time")
        draft.record_event("Deploying", "Starting the job for the first time")
        _warn(draft, spec)
        draft.begin(TransitionKind.DEPLOY, transitions.START, within=within)
        return True
    if refusal(before, spec, key_groups=draft.status.max_parallelism) is not None:
        return False
    if state is LifecycleState.SUSPENDED:
        draft.enter(LifecycleState.DEPLOYING, "Resuming", "Resuming the job from its last state")
        draft.record_event("Resuming", "Resuming the job from its last state")
        draft.begin(TransitionKind.DEPLOY, stopping.REMOVE, within=within)
        return True
    if _is_rolled_back(draft):
        return False
    changes = spec_changes(before, spec, key_groups=draft.status.max_parallelism)
    cost = dearest(changes)
    if cost is Cost.UPGRADE and state is LifecycleState.FAILED and _never_ran(draft):
        draft.enter(LifecycleState.DEPLOYING, "Retrying", f"Retrying the first deployment; changed: {named(changes)}")
        draft.record_event("Deploying", f"The job has never run; starting it with the changed spec. Changed: {named(changes)}")
        draft.begin(TransitionKind.DEPLOY, stopping.REMOVE, within=within)
        return True
    if cost is Cost.UPGRADE:
        draft.enter(LifecycleState.UPGRADING, "SpecChanged", f"Changed: {named(changes)}")
        _warn(draft, spec)
        draft.record_event("SpecChanged", f"Upgrading the job (upgradeMode {spec.upgrade_mode}). Changed: {named(changes)}")
        draft.begin(TransitionKind.UPGRADE, transitions.STOP, within=within)
        return True
    if cost is Cost.SCALE and (state not in STOPPED or failing_batches.given_up(draft)):
        _begin_rescale(draft, before, spec, within)
        return True
    _leave_rolled_back(draft, spec)
    if cost is not None and not _waits_for_snapshot(draft, before, spec):
        # The running driver does not depend on these fields; they take effect immediately.
        draft.reconciled(
            last_reconciled_spec=spec_text(spec), last_reconciled_generation=draft.observed.generation, reconciled_at=draft.now
        )
        if draft.observed.pod is not None:
            draft.do(ApplyChildren(spec=children_spec(draft, spec), parallelism=spec.parallelism, changed_only=True))
    return False


def _leave_rolled_back(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Leaves ROLLED_BACK if the job is in it: the spec that failed was replaced by the one that runs."""
    if draft.status.lifecycle_state is not LifecycleState.ROLLED_BACK:
        return
    driver = draft.observed.driver
    works = driver is not None and driver.state == "RUNNING" and driver.works
    told = "The failed spec was withdrawn; the job is running with the current spec"
    draft.enter(LifecycleState.STABLE if works else LifecycleState.RUNNING, "SpecWithdrawn", told)
    draft.record_event("SpecWithdrawn", told)
    draft.set(error=None)
    draft.reconciled(
        state=ReconciliationState.DEPLOYED,
        reconciled_at=draft.now,
        last_reconciled_generation=draft.observed.generation,
        last_reconciled_spec=spec_text(spec),
    )


def _warn(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Warns of a spec that is valid but most likely a mistake."""
    for sentence in storage_warnings(spec):
        draft.record_event("LocalStorage", sentence, warning=True)
    for sentence in spec.state_backend.warnings():
        draft.record_event("MemoryStateBackend", sentence, warning=True)


def _never_ran(draft: Draft) -> bool:
    """True if no spec of the job has ever run, so that there is nothing to upgrade."""
    now, reconciliation = draft.status, draft.status.reconciliation
    stable = reconciliation is not None and (reconciliation.last_stable_spec is not None or reconciliation.began_batch is not None)
    return not stable and now.last_checkpoint is None and now.last_savepoint is None


def _suspend(draft: Draft, spec: StatefulSparkJobSpec, within: timedelta) -> bool:
    state = draft.status.lifecycle_state
    if draft.observed.pod is None:
        if state is not LifecycleState.SUSPENDED:
            draft.enter(LifecycleState.SUSPENDED, "Suspended", "spec.state is suspended; the job was not started")
        return True
    mode = "a savepoint" if stopping.wants_savepoint(spec) else "its last checkpoint"
    draft.enter(LifecycleState.SUSPENDING, "Suspending", f"Stopping the job with {mode}")
    draft.record_event("Suspending", f"Stopping the job with {mode}")
    draft.begin(TransitionKind.SUSPEND, transitions.STOP, within=within)
    return True


def _is_rolled_back(draft: Draft) -> bool:
    """True if this generation was tried and rolled back."""
    reconciliation = draft.status.reconciliation
    return (
        reconciliation is not None
        and reconciliation.state is ReconciliationState.ROLLED_BACK
        and reconciliation.last_reconciled_generation == draft.observed.generation
    )


def _begin_rescale(draft: Draft, before: StatefulSparkJobSpec, spec: StatefulSparkJobSpec, within: timedelta) -> None:
    slots = f"from {before.parallelism} to {spec.parallelism} slots"
    pod = draft.observed.pod
    # A job that has not said its number of key groups yet may have fewer than it is to have slots: nothing is known of moves then, and
    # only a start finds out.
    groups = draft.status.max_parallelism or before.max_parallelism
    known = spec.parallelism <= groups
    changed = spec.rescale_mode is RescaleMode.IN_PLACE and before.parallelism != spec.parallelism and known
    driver = draft.observed.driver
    # A driver whose batches fail cannot take the checkpoint that a rescale in place begins with.
    in_place = changed and pod is not None and not pod.over and not (driver is not None and driver.fails)
    found = key_group_moves.moves(groups, before.parallelism, spec.parallelism) if known else ()
    how = "in place" if in_place else "with a driver restart"
    draft.enter(LifecycleState.RESCALING, "SpecChanged", f"Rescaling {slots}")
    told = f"; {key_group_moves.moved(found)} of {groups} key groups move to another slot" if known else ""
    draft.record_event("Rescaling", f"Rescaling {slots} {how}{told}")
    draft.begin(
        TransitionKind.RESCALE,
        transitions.RESCALE if in_place else transitions.STOP,
        within=within,
        from_parallelism=before.parallelism,
        to_parallelism=spec.parallelism,
        moved_key_groups=key_group_moves.moved(found),
        moves=found[:SLOTS_MAX],
    )


def _waits_for_snapshot(draft: Draft, before: StatefulSparkJobSpec, spec: StatefulSparkJobSpec) -> bool:
    """A new savepointNonce counts as reconciled once its StateSnapshot exists."""
    if spec.savepoint_nonce is None or spec.savepoint_nonce == before.savepoint_nonce:
        return False
    name = f"{draft.observed.name}-nonce-{spec.savepoint_nonce}"
    if any(snapshot.name == name for snapshot in draft.observed.snapshots):
        return False
    draft.do(TakeSnapshot(name=name, trigger=SnapshotTrigger.MANUAL))
    draft.requeue_after(1.0)
    return True
