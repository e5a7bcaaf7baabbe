"""What the status says of a job beside its life cycle: the driver's figures, key groups, snapshots, conditions. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark_operator.api.conditions import Condition, ConditionStatus, ConditionType
from statefulspark_operator.api.jobs import SLOTS_MAX, JobStateName, LifecycleState, SlotKeyGroups, SnapshotInfo
from statefulspark_operator.api.names import COMPONENT_EXECUTOR, LABEL_COMPONENT, LABEL_JOB
from statefulspark_operator.reconcile.initial import SNAPSHOT_REASONS
from statefulspark_operator.reconcile.last_state import TOO_OLD
from statefulspark_operator.reconcile.lifecycle import Draft
from statefulspark_operator.reconcile.memory import memory_plan
from statefulspark_operator.reconcile.specs import checked_spec
from statefulspark_operator.reconcile.steady import refused_changes

_RUNS: Final = frozenset({LifecycleState.RUNNING, LifecycleState.STABLE})
_WAITS: Final = frozenset({LifecycleState.SUSPENDED, LifecycleState.FINISHED})
_TROUBLE_CHECKPOINTS: Final = 3
PROGRESS_EVERY: Final = timedelta(seconds=30)
"""How old the figures of progress in the status of a job may be that is otherwise as it was."""
_NEXT_S: Final = 1.0
_PROGRESS: Final = ("batch", "last_checkpoint")


def report(draft: Draft) -> None:
    """Write what was seen into the status."""
    seen, driver = draft.seen, draft.seen.driver
    changed = draft.status.observed_generation != seen.generation or draft.status.memory_plan is None
    draft.set(
        observed_generation=seen.generation,
        job_id=draft.status.job_id or seen.uid,
        driver_pod=seen.pod.name if seen.pod is not None else None,
        executors=seen.executors,
        label_selector=f"{LABEL_JOB}={seen.name},{LABEL_COMPONENT}={COMPONENT_EXECUTOR}",
        last_checkpoint=_newer(draft.status.last_checkpoint, seen.stored),
    )
    if seen.spec is not None and changed:
        draft.set(memory_plan=memory_plan(seen.spec, seen.spec.parallelism))
    if driver is None:
        if seen.pod is None:
            draft.set(parallelism=0, key_groups=(), job_state=None)
        return
    draft.set(
        job_state=JobStateName(driver.state),
        attempt=driver.attempt,
        batch=driver.batch,
        parallelism=driver.parallelism,
        max_parallelism=driver.max_parallelism,
        key_groups=tuple(
            SlotKeyGroups(slot=slot.slot, first=slot.first, last=slot.last, executor=slot.executor) for slot in driver.slots[:SLOTS_MAX]
        ),
        last_checkpoint=_newer(driver.last_checkpoint, draft.status.last_checkpoint),
        last_savepoint=_newer(driver.last_savepoint, draft.status.last_savepoint),
        restored_from=driver.restored_from,
    )


def conclude(draft: Draft) -> None:
    """Set the conditions from everything else in the status."""
    for type_, status, reason, message in (
        _valid(draft),
        _ready(draft),
        _running(draft),
        _progressing(draft),
        _degraded(draft),
        _stalled(draft),
    ):
        _set_condition(draft, type_, status, reason, message)


def settle_progress(draft: Draft) -> None:
    """Leave the figures of progress as they were written last, unless something else has changed or they are old.

    A status that moved with each batch would cost a write and a watch event for each of them, to everybody who watches.
    """
    before = draft.seen.status
    old = {name: getattr(before, name) for name in _PROGRESS}
    if draft.status == before.model_copy(update={name: getattr(draft.status, name) for name in _PROGRESS}):
        fresh = before.progress_at is not None and draft.now - before.progress_at < PROGRESS_EVERY
        if fresh or draft.status == before:
            draft.set(**old)
            return
    elif draft.look_again_s is None:
        draft.look_again(_NEXT_S)  # what is new in the status may be the ground for more
    if draft.seen.driver is not None:
        draft.set(progress_at=draft.now)


def _newer(first: SnapshotInfo | None, second: SnapshotInfo | None) -> SnapshotInfo | None:
    """The one that was completed later."""
    if first is None or second is None:
        return first or second
    return max(first, second, key=lambda info: info.completed_at)


_Statement = tuple[ConditionType, bool, str, str]


def _valid(draft: Draft) -> _Statement:
    if draft.seen.problem is not None or draft.seen.spec is None:
        return ConditionType.VALID, False, "InvalidSpec", draft.seen.problem or "the spec cannot be read"
    reconciliation = draft.status.reconciliation
    before = checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None
    refused = refused_changes(before, draft.seen.spec)
    if refused is not None:
        fields = ", ".join(refused.rejected)
        return (
            ConditionType.VALID,
            False,
            "ImmutableField",
            f"{fields}: fixed for the life of the job's state. Set it back, or start a new job",
        )
    return ConditionType.VALID, True, "Valid", "The spec can be acted on"


def _ready(draft: Draft) -> _Statement:
    state, valid = draft.status.lifecycle_state, _valid(draft)[1]
    current = draft.status.reconciliation is not None and draft.status.transition is None and valid
    if state in _RUNS and current and draft.seen.driver is not None:
        return ConditionType.READY, True, "Running", "The job runs as the spec asks"
    if state in _WAITS:
        return ConditionType.READY, True, str(state).capitalize(), "The job is as the spec asks"
    return ConditionType.READY, False, _reason(draft), _message(draft)


def _running(draft: Draft) -> _Statement:
    driver = draft.seen.driver
    if driver is not None and driver.state == "RUNNING":
        return ConditionType.RUNNING, True, "Running", "Batches are run"
    return ConditionType.RUNNING, False, _reason(draft), _message(draft)


def _progressing(draft: Draft) -> _Statement:
    transition = draft.status.transition
    if transition is None:
        return ConditionType.PROGRESSING, False, "Settled", "Nothing is under way"
    return ConditionType.PROGRESSING, True, str(transition.kind).capitalize(), f"Step {transition.step}"


def _degraded(draft: Draft) -> _Statement:
    driver, state = draft.seen.driver, draft.status.lifecycle_state
    if state is LifecycleState.ROLLED_BACK:
        return ConditionType.DEGRADED, True, "RolledBack", "Runs with an older spec, since the new one failed"
    if state is LifecycleState.RECOVERING:
        return ConditionType.DEGRADED, True, "Recovering", "The driver was lost and is started again"
    if driver is not None:
        lost = [slot.slot for slot in driver.slots if slot.state != "RUNNING"]
        if lost and driver.state == "RUNNING":
            return ConditionType.DEGRADED, True, "SlotsMissing", f"{len(lost)} of {len(driver.slots)} slots do not run"
        if driver.failed_checkpoints >= _TROUBLE_CHECKPOINTS and driver.last_checkpoint is None:
            return (
                ConditionType.DEGRADED,
                True,
                "CheckpointsFail",
                f"{driver.failed_checkpoints} checkpoints have failed and none is complete",
            )
    return ConditionType.DEGRADED, False, "Well", "Nothing is wrong"


def _stalled(draft: Draft) -> _Statement:
    error = draft.status.error
    if draft.status.lifecycle_state is LifecycleState.FAILED:
        return ConditionType.STALLED, True, error.reason if error else "Failed", error.message if error else "The job failed"
    if draft.seen.problem is not None:
        return ConditionType.STALLED, True, "InvalidSpec", draft.seen.problem
    if draft.status.transition is not None and error is not None and error.reason in {"StopFailed", "RescaleFailed", TOO_OLD}:
        return ConditionType.STALLED, True, error.reason, error.message
    if draft.status.transition is None and error is not None and error.reason in SNAPSHOT_REASONS:
        return ConditionType.STALLED, True, error.reason, error.message
    return ConditionType.STALLED, False, "NotStalled", "Nobody has to do anything"


def _reason(draft: Draft) -> str:
    if draft.status.error is not None:
        return draft.status.error.reason
    state = draft.status.lifecycle_state
    return "".join(part.capitalize() for part in str(state or "Unknown").split("_"))


def _message(draft: Draft) -> str:
    if draft.status.error is not None:
        return draft.status.error.message
    history = draft.status.lifecycle_history
    return str(history[0].message) if history else "Known to the operator"


def _set_condition(draft: Draft, type_: ConditionType, holds: bool, reason: str, message: str) -> None:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    before = next((condition for condition in draft.status.conditions if condition.type is type_), None)
    since = before.last_transition_time if before is not None and before.status is status else draft.now
    condition = Condition(
        type=type_, status=status, reason=reason, message=message, last_transition_time=since, observed_generation=draft.seen.generation
    )
    others = [each for each in draft.status.conditions if each.type is not type_]
    draft.set(conditions=tuple(sorted((*others, condition), key=lambda each: list(ConditionType).index(each.type))))
