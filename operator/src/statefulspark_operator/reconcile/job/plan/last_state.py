"""The last state of a stopped job: the age limit of its checkpoint, and the StateSnapshot that registers it. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec, UpgradeMode
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import SnapshotInfo
from statefulspark_operator.api.snapshots import SnapshotTrigger, SnapshotType
from statefulspark_operator.reconcile.job.plan.actions import TakeSnapshot
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.specs import checked_spec

TOO_OLD: Final = "LastStateTooOld"


def needs_savepoint(draft: Draft, spec: StatefulSparkJobSpec) -> bool:
    """True if a savepoint is needed despite upgradeMode last-state, because the latest checkpoint is too old."""
    return spec.upgrade_mode is UpgradeMode.LAST_STATE and spec.checkpointing.savepoint_dir is not None and _too_old(draft, spec)


def refuses(draft: Draft, spec: StatefulSparkJobSpec, why: str) -> bool:
    """True if a driver that cannot take a savepoint or checkpoint (``why``) must not be stopped, because the state in storage is too old. Records the failure."""
    if spec.upgrade_mode is UpgradeMode.STATELESS or not _too_old(draft, spec):
        return False
    last = _newest(draft)
    what = (
        f"the latest checkpoint, completed at {last.completed_at:%Y-%m-%d %H:%M:%S} UTC, is"
        if last is not None
        else "no checkpoint exists, which is treated as"
    )
    failure = Failure(
        reason=TOO_OLD,
        message=f"{why}, and {what} older than spec.lastStateMaxCheckpointAge. Fix the driver, or increase or remove lastStateMaxCheckpointAge to resume from"
        " that state",
    )
    draft.record_failure(failure, failure.message)
    return True


def _too_old(draft: Draft, spec: StatefulSparkJobSpec) -> bool:
    if spec.last_state_max_checkpoint_age is None:
        return False
    last = _newest(draft)
    return last is None or draft.now - last.completed_at > timedelta(milliseconds=spec.last_state_max_checkpoint_age)


def _newest(draft: Draft) -> SnapshotInfo | None:
    known = [info for info in (draft.status.last_checkpoint, draft.status.last_savepoint) if info is not None]
    return max(known, key=lambda info: info.completed_at, default=None)


def register_last_state(draft: Draft) -> None:
    """Registers the state that the job was stopped with as a StateSnapshot, so that later starts can refer to it by name."""
    transition = draft.status.transition
    if transition is None or transition.state_path is None:
        return
    path = transition.state_path
    name = f"{draft.observed.name}-{transition.kind}-{transition.since:%Y%m%d%H%M%S}"
    if any(snapshot.path == path or snapshot.name == name for snapshot in draft.observed.snapshots):
        return
    known = next(
        (info for info in (draft.status.last_savepoint, draft.status.last_checkpoint) if info is not None and info.path == path), None
    )
    type_ = SnapshotType.SAVEPOINT if _is_savepoint(draft, path) else SnapshotType.CHECKPOINT
    draft.do(
        TakeSnapshot(
            name=name,
            trigger=SnapshotTrigger.UPGRADE,
            type=type_,
            existing_path=path,
            known=known,
            max_parallelism=draft.status.max_parallelism,
        )
    )


def _is_savepoint(draft: Draft, path: str) -> bool:
    last, reconciliation = draft.status.last_savepoint, draft.status.reconciliation
    if last is not None and last.path == path:
        return True
    spec = checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None
    folder = spec.checkpointing.savepoint_dir if spec is not None else None
    return folder is not None and path.startswith(f"{folder.rstrip('/')}/")
