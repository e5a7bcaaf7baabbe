"""Stops a driver with a savepoint or checkpoint, and handles drivers that cannot: the first step of most transitions. Pure."""

from __future__ import annotations

from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec, UpgradeMode
from statefulspark_operator.api.drivers import Driver, Failure, Operation
from statefulspark_operator.api.jobs import Transition, TransitionKind
from statefulspark_operator.reconcile.job.observe.observation import DriverPod
from statefulspark_operator.reconcile.job.plan import last_state
from statefulspark_operator.reconcile.job.plan.actions import AskDriver
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.specs import checked_spec

REMOVE: Final = "remove"
"""The next step: remove the driver pod."""
SILENT_S: Final = 30.0
"""A driver that does not respond for this long is stopped by deleting its pod."""
_SILENT: Final = "The driver does not respond"
_POLL_S: Final = 1.0
_RETRY_S: Final = 10.0


def target_spec(draft: Draft, transition: Transition) -> StatefulSparkJobSpec | None:
    """Target spec of the transition: for a rollback the last stable one, for a recovery the one that ran, otherwise the latest valid one."""
    reconciliation = draft.status.reconciliation
    if transition.kind is TransitionKind.ROLLBACK and reconciliation is not None:
        return checked_spec(reconciliation.last_stable_spec)
    if draft.observed.spec is None or transition.kind is TransitionKind.RECOVER:
        before = checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None
        return before or draft.observed.spec
    return draft.observed.spec


def wants_savepoint(spec: StatefulSparkJobSpec) -> bool:
    """True if the job is stopped with a savepoint."""
    return spec.upgrade_mode is UpgradeMode.SAVEPOINT and spec.checkpointing.savepoint_dir is not None


def stop(draft: Draft, transition: Transition) -> None:
    """Stops the driver with a savepoint or checkpoint."""
    pod, driver, spec = draft.observed.pod, draft.observed.driver, target_spec(draft, transition)
    if pod is None or pod.over or pod.deleting or pod.ending is not None:
        draft.step(REMOVE, state_path=_state_path(draft, pod))
        return
    savepoint = spec is not None and (wants_savepoint(spec) or last_state.needs_savepoint(draft, spec))
    if driver is None:
        waited_s = (draft.now - transition.since).total_seconds()
        if pod.trouble is not None:
            _last_state(draft, _SILENT, savepoint=savepoint)
        elif waited_s >= SILENT_S:
            _last_state_if_recent(draft, spec, _SILENT, savepoint=savepoint)
        else:
            draft.requeue_after(_POLL_S)
        return
    stateless = spec is not None and spec.upgrade_mode is UpgradeMode.STATELESS and transition.kind is TransitionKind.UPGRADE
    key = f"{transition.kind}-{transition.generation}-{transition.attempts}"
    operation = driver.operations.get(key)
    if operation is not None:
        _asked(draft, transition, driver, operation, savepoint=savepoint)
    elif driver.fails and not stateless:
        # It would wait for the end of a batch that never completes. The state and the batch's record are in storage.
        _last_state_if_recent(draft, spec, "The job's batches are failing", savepoint=savepoint)
    else:
        # A rollback returns to the state of the last stable spec.
        draft.do(AskDriver(kind="cancel" if stateless else "stop", key=key, savepoint=savepoint, retain=stateless))
        draft.requeue_after(_POLL_S)


def _asked(draft: Draft, transition: Transition, driver: Driver, operation: Operation, *, savepoint: bool) -> None:
    """Checks the progress of a requested stop."""
    if operation.state == "SUCCEEDED":
        draft.step(REMOVE, state_path=operation.snapshot.path if operation.snapshot is not None else None)
    elif operation.state == "RUNNING":
        draft.requeue_after(_POLL_S)
    elif driver.state == "RUNNING" and driver.failing is None:
        _stop_failed(draft, transition, operation)
    else:
        batches = ", batches failing" if driver.failing is not None else ""
        why = f"The driver could not take a savepoint or checkpoint (state {driver.state}{batches})"
        _last_state(draft, why, savepoint=savepoint)


def _last_state_if_recent(draft: Draft, spec: StatefulSparkJobSpec | None, why: str, *, savepoint: bool) -> None:
    """Resumes from the state in storage, unless it is older than the spec allows."""
    if spec is not None and last_state.refuses(draft, spec, why):
        draft.requeue_after(_RETRY_S)
    else:
        _last_state(draft, why, savepoint=savepoint)


def _last_state(draft: Draft, why: str, *, savepoint: bool) -> None:
    """Resumes from the state in storage, as Flink's operator does for an unhealthy job."""
    if savepoint:
        draft.record_event("LastStateFallback", f"{why}; skipping the savepoint and resuming from the last state in storage", warning=True)
    draft.step(REMOVE)


def _stop_failed(draft: Draft, transition: Transition, operation: Operation) -> None:
    """The job keeps running; the stop is retried with exponential backoff."""
    failure = operation.error or Failure(reason="Unknown", message="the driver gave no reason")
    told = f"Stopping the job with a savepoint or checkpoint failed; the job keeps running and the operator will retry: {failure.message}"
    draft.record_failure(Failure(reason="StopFailed", message=failure.message), told)
    again_later(draft, transition)


def again_later(draft: Draft, transition: Transition) -> None:
    """Retries with exponential backoff."""
    pause_s = min(300.0, _RETRY_S * 2**transition.attempts)
    since_s = (draft.now - transition.since).total_seconds()
    # The pauses so far add up to the time since the transition began.
    if since_s >= _RETRY_S * (2 ** min(transition.attempts + 1, 5) - 1) + max(0, transition.attempts - 4) * 300.0:
        draft.set(transition=transition.model_copy(update={"attempts": transition.attempts + 1}))
        draft.requeue_after(0)
    else:
        draft.requeue_after(pause_s)


def _state_path(draft: Draft, pod: DriverPod | None) -> str | None:
    if pod is not None and pod.ending is not None and pod.ending.path is not None:
        return pod.ending.path
    before = draft.status.transition
    return before.state_path if before is not None else None
