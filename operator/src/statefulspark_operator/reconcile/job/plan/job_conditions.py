"""The conditions of a job, derived from its status and the observation. Pure."""

from __future__ import annotations

from typing import Final

from statefulspark_operator.api.conditions import Condition, ConditionStatus, ConditionType
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import LifecycleState
from statefulspark_operator.reconcile.job.plan import failing_batches, missing_slots, name_conflicts, savepoint_schedule, spec_validity
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.job.plan.initial_state import SNAPSHOT_REASONS
from statefulspark_operator.reconcile.job.plan.last_state import TOO_OLD

_RUNS: Final = frozenset({LifecycleState.RUNNING, LifecycleState.STABLE})
_WAITS: Final = frozenset({LifecycleState.SUSPENDED, LifecycleState.FINISHED})
_TROUBLE_CHECKPOINTS: Final = 3

_Statement = tuple[ConditionType, bool, str, str]


def set_conditions(draft: Draft) -> None:
    """Set the conditions from everything else in the status."""
    for type_, status, reason, message in (
        _valid(draft),
        _ready(draft),
        _running(draft),
        _progressing(draft),
        _degraded(draft),
        _stalled(draft),
        _reconciling(draft),
    ):
        _set_condition(draft, type_, status, reason, message)


def _valid(draft: Draft) -> _Statement:
    problem = spec_validity.problem_of(draft)
    if problem is not None:
        return ConditionType.VALID, False, problem.reason, problem.message
    return ConditionType.VALID, True, "Valid", "The spec is valid"


def _ready(draft: Draft) -> _Statement:
    state, valid = draft.status.lifecycle_state, _valid(draft)[1]
    current = draft.status.reconciliation is not None and draft.status.transition is None and valid
    driver = draft.observed.driver
    if state in _RUNS and current and driver is not None:
        if driver.works:
            return ConditionType.READY, True, "Running", "The job is running with the current spec"
        if (failure := failing_batches.failure_of(draft)) is not None:
            return ConditionType.READY, False, failure.reason, failure.message
        return ConditionType.READY, False, "WaitingForFirstBatch", "The driver is running and has not committed a batch yet"
    if state in _WAITS:
        return ConditionType.READY, True, str(state).capitalize(), "The job is in the desired state"
    return ConditionType.READY, False, _reason(draft), _message(draft)


def _running(draft: Draft) -> _Statement:
    driver = draft.observed.driver
    if driver is not None and driver.state == "RUNNING":
        if driver.fails and (failure := failing_batches.failure_of(draft)) is not None:
            return ConditionType.RUNNING, False, failure.reason, failure.message
        if driver.runs:
            return ConditionType.RUNNING, True, "Running", "The driver is processing batches"
    if (failure := missing_slots.failure_of(draft)) is not None:
        return ConditionType.RUNNING, False, failure.reason, failure.message
    return ConditionType.RUNNING, False, _reason(draft), _message(draft)


def _progressing(draft: Draft) -> _Statement:
    transition = draft.status.transition
    if transition is None:
        return ConditionType.PROGRESSING, False, "NotProgressing", "No transition is in progress"
    return ConditionType.PROGRESSING, True, str(transition.kind).capitalize(), f"Current step: {transition.step}"


def _degraded(draft: Draft) -> _Statement:
    driver, state = draft.observed.driver, draft.status.lifecycle_state
    if (failure := failing_batches.failure_of(draft)) is not None:
        return ConditionType.DEGRADED, True, failure.reason, failure.message
    if state is LifecycleState.ROLLED_BACK:
        return ConditionType.DEGRADED, True, "RolledBack", "Running the last stable spec because the new spec failed"
    if state is LifecycleState.RECOVERING:
        return ConditionType.DEGRADED, True, "Recovering", "The driver was lost and is being restarted"
    if (missing := missing_slots.failure_of(draft)) is not None:
        return ConditionType.DEGRADED, True, missing.reason, missing.message
    if (trouble := _start_trouble(draft)) is not None:
        return ConditionType.DEGRADED, True, trouble.reason, trouble.message
    if driver is not None and driver.failed_checkpoints >= _TROUBLE_CHECKPOINTS and driver.last_checkpoint is None:
        told = f"{driver.failed_checkpoints} checkpoints failed and none has completed"
        return ConditionType.DEGRADED, True, "CheckpointsFail", told
    if driver is not None and (failed := savepoint_schedule.failure_of(draft)) is not None:
        return ConditionType.DEGRADED, True, failed.reason, failed.message
    return ConditionType.DEGRADED, False, "NotDegraded", "The job has no known problems"


def _start_trouble(draft: Draft) -> Failure | None:
    """Problem of the driver pod that a transition starts, if Kubernetes names one."""
    pod = draft.observed.pod
    if draft.status.transition is None:
        return None
    return name_conflicts.refusal_of(draft) or (pod.trouble if pod is not None else None)


def _stalled(draft: Draft) -> _Statement:
    error = draft.status.error
    if draft.status.lifecycle_state is LifecycleState.FAILED:
        return ConditionType.STALLED, True, error.reason if error else "Failed", error.message if error else "The job failed"
    if (problem := spec_validity.problem_of(draft)) is not None:
        return ConditionType.STALLED, True, problem.reason, problem.message
    if draft.status.lifecycle_state is LifecycleState.ROLLED_BACK:
        return ConditionType.STALLED, True, "RolledBack", error.message if error else "Correct the new spec to try again"
    if (
        draft.status.transition is not None
        and error is not None
        and error.reason in {"StopFailed", "RescaleFailed", TOO_OLD, name_conflicts.TAKEN, name_conflicts.REFUSED}
    ):
        return ConditionType.STALLED, True, error.reason, error.message
    if (refused := name_conflicts.refusal_of(draft)) is not None:
        return ConditionType.STALLED, True, refused.reason, refused.message
    if draft.status.transition is None and error is not None and error.reason in SNAPSHOT_REASONS | {name_conflicts.TAKEN}:
        return ConditionType.STALLED, True, error.reason, error.message
    return ConditionType.STALLED, False, "NotStalled", "No intervention is needed"


def _reconciling(draft: Draft) -> _Statement:
    """Work in progress as kstatus reads it: True if the job is neither ready nor stalled."""
    if _stalled(draft)[1]:
        return ConditionType.RECONCILING, False, "Stalled", "The operator waits for intervention"
    ready = _ready(draft)
    if ready[1]:
        return ConditionType.RECONCILING, False, "Reconciled", "The job is in the desired state"
    progressing = _progressing(draft)
    _, _, reason, message = progressing if progressing[1] else ready
    return ConditionType.RECONCILING, True, reason, message


def _reason(draft: Draft) -> str:
    if draft.status.error is not None:
        return draft.status.error.reason
    state = draft.status.lifecycle_state
    return "".join(part.capitalize() for part in str(state or "Unknown").split("_"))


def _message(draft: Draft) -> str:
    if draft.status.error is not None:
        return draft.status.error.message
    history = draft.status.lifecycle_history
    return str(history[0].message) if history else "The job was accepted and has not been deployed yet"


_ORDER: Final = {type_: number for number, type_ in enumerate(ConditionType)}


def _set_condition(draft: Draft, type_: ConditionType, holds: bool, reason: str, message: str) -> None:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    before = next((condition for condition in draft.status.conditions if condition.type is type_), None)
    since = before.last_transition_time if before is not None and before.status is status else draft.now
    condition = Condition(
        type=type_, status=status, reason=reason, message=message, last_transition_time=since, observed_generation=draft.observed.generation
    )
    if condition == before:
        return
    others = [each for each in draft.status.conditions if each.type is not type_]
    draft.set(conditions=tuple(sorted((*others, condition), key=lambda each: _ORDER[each.type])))
