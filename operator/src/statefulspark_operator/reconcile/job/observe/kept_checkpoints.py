"""The checkpoints that a job keeps, according to its driver, and when a reconciliation has to ask. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Driver
from statefulspark_operator.api.jobs import PROGRESS_EVERY, LifecycleState, StatefulSparkJobStatus
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType
from statefulspark_operator.reconcile.job.observe.observation import DriverPod, ObservedSnapshot
from statefulspark_operator.reconcile.specs import checked_spec

_OPERATOR_TRIGGERS: Final = frozenset({SnapshotTrigger.JOB, SnapshotTrigger.UPGRADE})
"""Triggers of objects that the operator creates by itself; users' objects are never changed."""
_AT_REST: Final = frozenset({LifecycleState.SUSPENDED, LifecycleState.FINISHED, LifecycleState.FAILED})
"""No driver runs, so nothing changes in the job's directory."""


def needs_listing(
    spec: StatefulSparkJobSpec | None, status: StatefulSparkJobStatus, snapshots: tuple[ObservedSnapshot, ...], now: datetime
) -> bool:
    """True if a reconciliation has to list the retained checkpoints: whenever progress is written, and only if there may be objects for them."""
    if spec is None or status.transition is not None:
        return False
    if status.lifecycle_state in _AT_REST:
        return False
    listed = [snapshot for snapshot in snapshots if is_listed(snapshot)]
    due = status.progress_at is None or now - status.progress_at >= PROGRESS_EVERY
    return due and bool(listed or spec.checkpointing.retention.listed_count)


def kept_paths(status: StatefulSparkJobStatus, pod: DriverPod | None, driver: Driver | None) -> frozenset[str] | None:
    """Paths of the retained checkpoints, as the driver reports them while it runs and when it ends; None if it has not reported them."""
    if driver is not None:
        return frozenset(info.path for info in driver.retained) if driver.retained is not None else None
    numbers = pod.ending.kept if pod is not None and pod.ending is not None else None
    reconciliation = status.reconciliation
    ran = checked_spec(reconciliation.last_reconciled_spec) if reconciliation is not None else None
    if numbers is None or ran is None or status.job_id is None:
        return None
    return frozenset(f"{ran.checkpointing.dir}/{status.job_id}/chk-{number}" for number in numbers)


def is_listed(snapshot: ObservedSnapshot) -> bool:
    """True if the operator itself created the object for a checkpoint."""
    complete = snapshot.state is SnapshotState.COMPLETED and not snapshot.deleting
    return complete and snapshot.type is SnapshotType.CHECKPOINT and snapshot.trigger in _OPERATOR_TRIGGERS
