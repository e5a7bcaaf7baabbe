"""Plans what to do about a StateSnapshot: take it once, register an existing one, dispose of it on deletion if requested. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark_operator.api.drivers import Driver, Failure, Operation
from statefulspark_operator.api.jobs import SnapshotInfo
from statefulspark_operator.api.responses import StorageReport
from statefulspark_operator.api.snapshots import SnapshotState, StateSnapshotStatus
from statefulspark_operator.reconcile.job.plan.actions import Event

FINAL: Final = frozenset({SnapshotState.COMPLETED, SnapshotState.FAILED, SnapshotState.ABANDONED})
_PAUSE_S: Final = 10.0
_PAUSE_S_MAX: Final = 600.0
_POLL_S: Final = 1.0
_JOB_TIMEOUT: Final = timedelta(minutes=10)
"""Time for which a snapshot waits for its job to run before it is abandoned."""
_STORAGE_TIMEOUT: Final = timedelta(minutes=10)
"""Time for which failed storage pods are retried."""
_STORAGE_POLL_S: Final = 2.0
_JOB_POLL_S: Final = 5.0
_POLL_S_MAX: Final = 30.0
_STORAGE_PAUSE_S: Final = 20.0
_CREATOR_WRITES: Final = timedelta(seconds=10)
"""Time after an object's creation that its creator, the reconciliation of the job, has to write the status."""
_TRANSIENT: Final = frozenset({"Unavailable", "StoragePodFailed", "StoragePodLate", "Unschedulable"})
"""Reasons that may be temporary."""

StorageCommand = Literal["describe", "dispose"]
"""Commands of a storage pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotObservation:
    """Observed state of a snapshot at one point in time."""

    now: datetime
    name: str
    uid: str
    generation: int
    created_at: datetime
    deleting: bool
    has_finalizer: bool
    awaits_creator: bool
    """True if the reconciliation of the job has created the object for a snapshot that it knows, and has not written the status yet."""
    spec: StateSnapshotSpec | None
    problem: str | None
    status: StateSnapshotStatus
    job_exists: bool
    job_deleting: bool = False
    driver: Driver | None = None
    deleted_at: datetime | None = None
    refused: Failure | None = None
    """Reason for which the snapshot must not be written to its path."""
    unreachable: Failure | None = None
    """Reason for which no storage pod can be started."""
    report: StorageReport | Failure | None = None
    """Report of the storage pod, or why it failed; None until there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPlan:
    """Next actions for a snapshot. The status is written first."""

    status: StateSnapshotStatus
    add_finalizer: bool = False
    remove_finalizer: bool = False
    ask: Mapping[str, str | None] | None = None
    """Request to the driver: ``kind``, ``key``, ``target``, and ``format`` unless it is native."""
    storage_command: StorageCommand | None = None
    """Command of the storage pod to start. Does nothing if the pod exists."""
    delete_storage_pods: bool = False
    """True if the storage pod can be deleted; a later command starts a new one."""
    events: tuple[Event, ...] = field(default=())
    left_to_creator: bool = False
    """True if nothing is written for now, not even a label: the reconciliation of the job is about to write the status."""
    requeue_after_s: float | None = None


def plan_snapshot(observed: SnapshotObservation) -> SnapshotPlan:
    """Decides what to do about a snapshot."""
    status = observed.status.model_copy(update={"observed_generation": observed.generation})
    if observed.deleting:
        return _deleted(observed, status)
    if observed.awaits_creator and (left_s := _left_to_creator_s(observed)) > 0:
        return SnapshotPlan(status=observed.status, left_to_creator=True, requeue_after_s=left_s)
    if not observed.has_finalizer and not _is_checkpoint(observed):
        return SnapshotPlan(status=status, add_finalizer=True, requeue_after_s=0)
    if status.state in FINAL:
        return SnapshotPlan(status=status, delete_storage_pods=True)
    if observed.spec is None:
        return _end(status, SnapshotState.FAILED, observed, "InvalidSpec", observed.problem or "the spec cannot be parsed")
    existing = existing_path(observed.spec)
    if existing is not None:
        return _register(observed, status, existing)
    if not observed.job_exists or observed.job_deleting:
        return _end(status, SnapshotState.ABANDONED, observed, "JobGone", f"job {observed.spec.job_reference.name} does not exist")
    if observed.driver is None or observed.driver.state != "RUNNING":
        if observed.now - observed.created_at > _JOB_TIMEOUT and status.trigger_timestamp is None:
            return _end(
                status,
                SnapshotState.ABANDONED,
                observed,
                "JobNotRunning",
                f"the job was not running within {_minutes(_JOB_TIMEOUT)} of the snapshot's creation",
            )
        return SnapshotPlan(status=status, requeue_after_s=_poll_s(_JOB_POLL_S, observed.now - observed.created_at))
    return _taken(observed, status, observed.driver, observed.spec)


def _is_checkpoint(observed: SnapshotObservation) -> bool:
    """True if deletion needs no cleanup: the files of a checkpoint belong to its job."""
    return observed.spec is not None and observed.spec.checkpoint is not None


def _left_to_creator_s(observed: SnapshotObservation) -> float:
    """Seconds for which the object is left to its creator: nothing is written and no storage pod is started.

    If the operator terminates between the creation and the status, a storage pod describes the snapshot after that time.
    """
    age = observed.now - observed.created_at
    if age < -_CREATOR_WRITES:
        return 0.0  # clocks differ; waiting for this one to catch up could take forever
    return (_CREATOR_WRITES - max(timedelta(), age)).total_seconds()


def _register(observed: SnapshotObservation, status: StateSnapshotStatus, path: str) -> SnapshotPlan:
    """Registers a snapshot that exists in storage already."""
    if observed.unreachable is not None:
        return _end(status, SnapshotState.FAILED, observed, observed.unreachable.reason, observed.unreachable.message)
    report = observed.report
    if report is None:
        return SnapshotPlan(
            status=status, storage_command="describe", requeue_after_s=_poll_s(_STORAGE_POLL_S, observed.now - observed.created_at)
        )
    if isinstance(report, StorageReport) and report.snapshot is not None:
        found = report.snapshot
        plan = _completed(status, found.info(), f"Registered {path}", found.max_parallelism)
    else:
        failure = _failure(report)
        if failure.reason in _TRANSIENT and observed.now - observed.created_at < _STORAGE_TIMEOUT:
            return SnapshotPlan(
                status=status.model_copy(update={"error": failure.message}), delete_storage_pods=True, requeue_after_s=_STORAGE_PAUSE_S
            )
        plan = _end(status, SnapshotState.FAILED, observed, "NotRestorable", failure.message)
    return replace(plan, delete_storage_pods=True)


def _poll_s(first_s: float, waited: timedelta) -> float:
    """Poll interval: a tenth of the time waited so far, so that thousands of snapshots that wait for long cost little."""
    return min(_POLL_S_MAX, max(first_s, waited.total_seconds() / 10))


def _minutes(duration: timedelta) -> str:
    return f"{duration // timedelta(minutes=1)} minutes"


def _failure(report: StorageReport | Failure) -> Failure:
    if isinstance(report, Failure):
        return report
    return (
        report.error.failure()
        if report.error is not None
        else Failure(reason="Unknown", message="the storage pod returned no result for this request")
    )


def _taken(observed: SnapshotObservation, status: StateSnapshotStatus, driver: Driver, spec: StateSnapshotSpec) -> SnapshotPlan:
    if observed.refused is not None:
        return _end(status, SnapshotState.FAILED, observed, observed.refused.reason, observed.refused.message)
    # The key holds the object's identity and the attempt: a repeated request finds the first one's operation.
    key = f"snapshot-{observed.uid}-{status.failures}"
    operation = driver.operations.get(key)
    if operation is None:
        return _ask(observed, status, spec, key)
    if operation.state == "SUCCEEDED" and operation.snapshot is not None:
        return _completed(status, operation.snapshot, f"{operation.snapshot.path} completed", driver.max_parallelism)
    if operation.state == "FAILED":
        return _failed(observed, status, spec, operation)
    status = status.model_copy(update={"state": SnapshotState.IN_PROGRESS, "trigger_id": operation.id})
    return SnapshotPlan(status=status, requeue_after_s=_POLL_S)


def _ask(observed: SnapshotObservation, status: StateSnapshotStatus, spec: StateSnapshotSpec, key: str) -> SnapshotPlan:
    """Requests the snapshot from the driver, after the backoff of earlier failures."""
    if status.failures and status.result_timestamp is not None:
        pause_s = min(_PAUSE_S_MAX, _PAUSE_S * 2.0 ** min(status.failures - 1, 10))
        left_s = pause_s - (observed.now - status.result_timestamp).total_seconds()
        if left_s > 0:
            return SnapshotPlan(status=status, requeue_after_s=left_s)
    target = spec.savepoint.path if spec.savepoint is not None else None
    ask = {"kind": "savepoint" if spec.savepoint is not None else "checkpoint", "key": key, "target": target}
    if spec.savepoint is not None and spec.savepoint.format != "native":
        ask["format"] = spec.savepoint.format  # a driver of an earlier release knows no formats
    status = status.model_copy(update={"state": SnapshotState.IN_PROGRESS, "trigger_timestamp": observed.now})
    return SnapshotPlan(status=status, ask=ask, requeue_after_s=_POLL_S)


def _failed(observed: SnapshotObservation, status: StateSnapshotStatus, spec: StateSnapshotSpec, operation: Operation) -> SnapshotPlan:
    message = operation.error.message if operation.error is not None else "the driver gave no reason"
    failures = status.failures + 1
    status = status.model_copy(update={"failures": failures, "error": message, "result_timestamp": observed.now})
    if spec.backoff_limit >= 0 and failures > spec.backoff_limit:
        return _end(status, SnapshotState.FAILED, observed, "SnapshotFailed", message)
    status = status.model_copy(update={"state": SnapshotState.TRIGGER_PENDING})
    event = Event(reason="SnapshotError", message=f"Attempt {failures}: {message}", warning=True)
    return SnapshotPlan(status=status, events=(event,), requeue_after_s=0)


def _completed(status: StateSnapshotStatus, info: SnapshotInfo, message: str, max_parallelism: int | None = None) -> SnapshotPlan:
    status = status.model_copy(
        update={
            "state": SnapshotState.COMPLETED,
            "result_timestamp": info.completed_at,
            "path": info.path,
            "size_bytes": info.size_bytes,
            "checkpoint_id": info.id,
            "batch": info.batch,
            "max_parallelism": max_parallelism,
            "error": None,
        }
    )
    return SnapshotPlan(status=status, events=(Event(reason="SnapshotCompleted", message=message),))


def _end(status: StateSnapshotStatus, state: SnapshotState, observed: SnapshotObservation, reason: str, message: str) -> SnapshotPlan:
    status = status.model_copy(update={"state": state, "error": message, "result_timestamp": observed.now})
    return SnapshotPlan(status=status, events=(Event(reason=reason, message=message, warning=True),))


def _deleted(observed: SnapshotObservation, status: StateSnapshotStatus) -> SnapshotPlan:
    """Disposes of the savepoint if requested. If that fails, records an event and releases the object: a finalizer must not block forever."""
    if not observed.has_finalizer:
        return SnapshotPlan(status=status)
    path, report = wants_disposal(observed.spec, status), observed.report
    if path is None or (isinstance(report, StorageReport) and report.disposed):
        return SnapshotPlan(status=status, remove_finalizer=True, delete_storage_pods=report is not None)
    late = observed.deleted_at is not None and observed.now - observed.deleted_at >= _STORAGE_TIMEOUT
    failure = observed.unreachable
    if failure is None and report is not None:
        failure = _failure(report)
    if failure is None and late:
        failure = Failure(reason="StoragePodLate", message=f"no storage pod deleted it within {_minutes(_STORAGE_TIMEOUT)}")
    if failure is None:
        waited = observed.now - observed.deleted_at if observed.deleted_at is not None else timedelta()
        return SnapshotPlan(status=status, storage_command="dispose", requeue_after_s=_poll_s(_STORAGE_POLL_S, waited))
    if failure.reason in _TRANSIENT and not late:
        return SnapshotPlan(status=status, delete_storage_pods=True, requeue_after_s=_STORAGE_PAUSE_S)
    event = Event(reason="DisposalSkipped", message=f"{path} was not deleted from storage: {failure.message}", warning=True)
    return SnapshotPlan(status=status, events=(event,), remove_finalizer=True, delete_storage_pods=report is not None)


def wants_disposal(spec: StateSnapshotSpec | None, status: StateSnapshotStatus) -> str | None:
    """Path of the savepoint to delete with the object; None if there is none."""
    return status.path if spec is not None and spec.savepoint is not None and spec.savepoint.dispose_on_delete else None


def existing_path(spec: StateSnapshotSpec) -> str | None:
    """Path of a snapshot that exists already; None if it must be taken."""
    if spec.savepoint is not None and spec.savepoint.already_exists:
        return spec.savepoint.path
    return spec.checkpoint.path if spec.checkpoint is not None else None
