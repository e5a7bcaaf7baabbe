"""Scheduled savepoints and their retention. Pure.

The name of a scheduled StateSnapshot contains its due time, so that two replicas, or a restarted one, create it only once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from statefulspark.config.cron import next_time
from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.savepoints import SavepointScheduleSpec
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType
from statefulspark_operator.reconcile.job.observe.observation import ObservedSnapshot
from statefulspark_operator.reconcile.job.plan.actions import DeleteSnapshot, TakeSnapshot
from statefulspark_operator.reconcile.job.plan.draft import Draft

_OPEN: Final = frozenset({SnapshotState.TRIGGER_PENDING, SnapshotState.IN_PROGRESS})


def keep_schedule(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Triggers a due savepoint, of running jobs only and one at a time. Missed savepoints are skipped."""
    schedule, driver = spec.savepoints.schedule, draft.observed.driver
    if schedule is None or driver is None or driver.state != "RUNNING":
        return
    scheduled = _scheduled(draft)
    if any(snapshot.state in _OPEN for snapshot in scheduled):
        return
    started = max((snapshot.created_at for snapshot in scheduled), default=draft.status.lifecycle_since or draft.now)
    due = next_due(schedule, started, draft.now)
    if due > draft.now:
        draft.requeue_after((due - draft.now).total_seconds())
        return
    draft.do(
        TakeSnapshot(
            name=f"{draft.observed.name}-scheduled-{due.strftime('%Y%m%d%H%M%S')}",
            trigger=SnapshotTrigger.SCHEDULED,
            dispose=True,
            format=schedule.format,
        )
    )


def next_due(schedule: SavepointScheduleSpec, last: datetime, now: datetime) -> datetime:
    """Due time of the savepoint after ``last``: the latest due time that has passed, otherwise the next one."""
    if schedule.interval is not None:
        every = timedelta(milliseconds=schedule.interval)
        missed = max(1, int((now - last) / every))
        return last + missed * every
    cron = schedule.cron or ""
    due = next_time(cron, last.astimezone(UTC))
    while due <= now and (after := next_time(cron, due)) <= now:
        due = after
    return due


def keep_history(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Deletes scheduled and upgrade snapshots beyond count and age. The latest completed savepoint of each kind is always kept.

    Scheduled savepoints are deleted with their files; of upgrade savepoints only the objects are deleted, since a user may need the files.
    """
    history = spec.savepoints.history
    oldest = draft.now - timedelta(milliseconds=history.age)
    for trigger in (SnapshotTrigger.SCHEDULED, SnapshotTrigger.UPGRADE):
        for place, snapshot in enumerate(_completed(draft, trigger, SnapshotType.SAVEPOINT)):
            if place > 0 and (place >= history.count or snapshot.created_at < oldest):
                draft.do(DeleteSnapshot(name=snapshot.name))


def _completed(draft: Draft, trigger: SnapshotTrigger, type_: SnapshotType) -> list[ObservedSnapshot]:
    """Completed snapshots of a kind, newest first."""
    found = (
        snapshot
        for snapshot in draft.observed.snapshots
        if (snapshot.trigger, snapshot.type, snapshot.state) == (trigger, type_, SnapshotState.COMPLETED) and not snapshot.deleting
    )
    return sorted(found, key=lambda snapshot: (snapshot.created_at, snapshot.name), reverse=True)


def _scheduled(draft: Draft) -> list[ObservedSnapshot]:
    return [snapshot for snapshot in draft.observed.snapshots if snapshot.trigger is SnapshotTrigger.SCHEDULED]
