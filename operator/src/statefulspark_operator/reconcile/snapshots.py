"""What becomes of a StateSnapshot: taken once, known by its path, disposed of when deleted if asked for. Planning is pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark_operator.api.drivers import Driver, Failure, Operation
from statefulspark_operator.api.jobs import SnapshotInfo
from statefulspark_operator.api.snapshots import SnapshotState, StateSnapshotStatus
from statefulspark_operator.reconcile.actions import Event

FINAL: Final = frozenset({SnapshotState.COMPLETED, SnapshotState.FAILED, SnapshotState.ABANDONED})
_PAUSE_S: Final = 10.0
_PAUSE_S_MAX: Final = 600.0
_POLL_S: Final = 1.0
_PATIENCE: Final = timedelta(minutes=10)
"""How long a snapshot waits for its job to run before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotObservation:
    """One look at one snapshot."""

    now: datetime
    name: str
    uid: str
    generation: int
    created_at: datetime
    deleting: bool
    has_finalizer: bool
    spec: StateSnapshotSpec | None
    problem: str | None
    status: StateSnapshotStatus
    job_exists: bool
    job_deleting: bool = False
    driver: Driver | None = None
    found: SnapshotInfo | None = None
    """What is at the path of a snapshot that exists already."""
    found_max_parallelism: int | None = None
    found_problem: Failure | None = None
    """Why that cannot be told for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPlan:
    """What to do about a snapshot. The status is written first."""

    status: StateSnapshotStatus
    add_finalizer: bool = False
    remove_finalizer: bool = False
    ask: Mapping[str, str | None] | None = None
    """Ask the driver: ``kind``, ``key``, ``target``."""
    dispose: bool = False
    """Delete it from storage."""
    events: tuple[Event, ...] = field(default=())
    look_again_s: float | None = None


def plan_snapshot(seen: SnapshotObservation) -> SnapshotPlan:
    """Decide what to do about a snapshot."""
    status = seen.status.model_copy(update={"observed_generation": seen.generation})
    if seen.deleting:
        return _deleted(seen, status)
    if not seen.has_finalizer and not _is_checkpoint(seen):
        return SnapshotPlan(status=status, add_finalizer=True, look_again_s=0)
    if status.state in FINAL:
        return SnapshotPlan(status=status)
    if seen.spec is None:
        return _end(status, SnapshotState.FAILED, seen, "InvalidSpec", seen.problem or "the spec cannot be read")
    existing = _existing_path(seen.spec)
    if existing is not None:
        return _made_known(seen, status, existing)
    if not seen.job_exists or seen.job_deleting:
        return _end(status, SnapshotState.ABANDONED, seen, "JobGone", f"there is no job {seen.spec.job_reference.name} to take it of")
    if seen.driver is None or seen.driver.state != "RUNNING":
        if seen.now - seen.created_at > _PATIENCE and status.trigger_timestamp is None:
            return _end(status, SnapshotState.ABANDONED, seen, "JobNotRunning", "the job did not run in time to take it")
        return SnapshotPlan(status=status, look_again_s=5.0)
    return _taken(seen, status, seen.driver, seen.spec)


def _is_checkpoint(seen: SnapshotObservation) -> bool:
    """Whether nothing has to be done when it is deleted: a checkpoint's files are its job's."""
    return seen.spec is not None and seen.spec.checkpoint is not None


def _existing_path(spec: StateSnapshotSpec) -> str | None:
    if spec.savepoint is not None and spec.savepoint.already_exists:
        return spec.savepoint.path
    return spec.checkpoint.path if spec.checkpoint is not None else None


def _made_known(seen: SnapshotObservation, status: StateSnapshotStatus, path: str) -> SnapshotPlan:
    if seen.found is not None:
        return _completed(seen, status, seen.found, f"{path} is known")
    if seen.found_problem is not None:
        return _end(status, SnapshotState.FAILED, seen, seen.found_problem.reason, seen.found_problem.message)
    return SnapshotPlan(status=status, look_again_s=10.0)


def _taken(seen: SnapshotObservation, status: StateSnapshotStatus, driver: Driver, spec: StateSnapshotSpec) -> SnapshotPlan:
    # The key holds the object's identity and the attempt: a repeated request finds the first one's operation.
    key = f"snapshot-{seen.uid}-{status.failures}"
    operation = driver.operations.get(key)
    if operation is None:
        return _ask(seen, status, spec, key)
    if operation.state == "SUCCEEDED" and operation.snapshot is not None:
        return _completed(seen, status, operation.snapshot, f"{operation.snapshot.path} is complete", driver.max_parallelism)
    if operation.state == "FAILED":
        return _failed(seen, status, spec, operation)
    status = status.model_copy(update={"state": SnapshotState.IN_PROGRESS, "trigger_id": operation.id})
    return SnapshotPlan(status=status, look_again_s=_POLL_S)


def _ask(seen: SnapshotObservation, status: StateSnapshotStatus, spec: StateSnapshotSpec, key: str) -> SnapshotPlan:
    """Ask, after the pause that a failure before demands."""
    if status.failures and status.result_timestamp is not None:
        pause_s = min(_PAUSE_S_MAX, _PAUSE_S * 2.0 ** min(status.failures - 1, 10))
        left_s = pause_s - (seen.now - status.result_timestamp).total_seconds()
        if left_s > 0:
            return SnapshotPlan(status=status, look_again_s=left_s)
    target = spec.savepoint.path if spec.savepoint is not None else None
    ask = {"kind": "savepoint" if spec.savepoint is not None else "checkpoint", "key": key, "target": target}
    status = status.model_copy(update={"state": SnapshotState.IN_PROGRESS, "trigger_timestamp": seen.now})
    return SnapshotPlan(status=status, ask=ask, look_again_s=_POLL_S)


def _failed(seen: SnapshotObservation, status: StateSnapshotStatus, spec: StateSnapshotSpec, operation: Operation) -> SnapshotPlan:
    message = operation.error.message if operation.error is not None else "the driver does not say why"
    failures = status.failures + 1
    status = status.model_copy(update={"failures": failures, "error": message, "result_timestamp": seen.now})
    if spec.backoff_limit >= 0 and failures > spec.backoff_limit:
        return _end(status, SnapshotState.FAILED, seen, "SnapshotFailed", message)
    status = status.model_copy(update={"state": SnapshotState.TRIGGER_PENDING})
    event = Event(reason="SnapshotError", message=f"Attempt {failures}: {message}", warning=True)
    return SnapshotPlan(status=status, events=(event,), look_again_s=0)


def _completed(
    seen: SnapshotObservation, status: StateSnapshotStatus, info: SnapshotInfo, message: str, max_parallelism: int | None = None
) -> SnapshotPlan:
    status = status.model_copy(
        update={
            "state": SnapshotState.COMPLETED,
            "result_timestamp": info.completed_at,
            "path": info.path,
            "size_bytes": info.size_bytes,
            "checkpoint_id": info.id,
            "batch": info.batch,
            "max_parallelism": max_parallelism or seen.found_max_parallelism,
            "error": None,
        }
    )
    return SnapshotPlan(status=status, events=(Event(reason="SnapshotCompleted", message=message),))


def _end(status: StateSnapshotStatus, state: SnapshotState, seen: SnapshotObservation, reason: str, message: str) -> SnapshotPlan:
    status = status.model_copy(update={"state": state, "error": message, "result_timestamp": seen.now})
    return SnapshotPlan(status=status, events=(Event(reason=reason, message=message, warning=True),))


def _deleted(seen: SnapshotObservation, status: StateSnapshotStatus) -> SnapshotPlan:
    if not seen.has_finalizer:
        return SnapshotPlan(status=status)
    dispose = (
        seen.spec is not None and seen.spec.savepoint is not None and seen.spec.savepoint.dispose_on_delete and status.path is not None
    )
    return SnapshotPlan(status=status, dispose=dispose, remove_finalizer=True)
