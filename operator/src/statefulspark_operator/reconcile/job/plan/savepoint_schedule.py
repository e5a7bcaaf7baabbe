"""Scheduled savepoints and their retention. Pure.

The name of a scheduled StateSnapshot contains its due time, so that two replicas, or a restarted one, create it only once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.savepoints import SavepointScheduleSpec
from statefulspark.config.values.cron import next_time, previous_time
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType
from statefulspark_operator.reconcile.job.observe.observation import ObservedSnapshot
from statefulspark_operator.reconcile.job.plan.actions import DeleteSnapshot, TakeSnapshot
from statefulspark_operator.reconcile.job.plan.draft import Draft

_LOST: Final = frozenset({SnapshotState.FAILED, SnapshotState.ABANDONED})
_LOST_MAX: Final = 3
"""Number of failed scheduled StateSnapshots that are kept, newest first."""
FAILS: Final = "SavepointsFail"
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
    due = next_time(cron, last)
    # Backwards from now: there may be a hundred thousand due times in between.
    return due if due > now else previous_time(cron, now.replace(second=0, microsecond=0) + timedelta(minutes=1))


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
    # The newest is always kept: the next due time follows from it.
    for snapshot in _newest_first(each for each in _scheduled(draft) if each.state in _LOST and not each.deleting)[_LOST_MAX:]:
        draft.do(DeleteSnapshot(name=snapshot.name))


def failure_of(draft: Draft) -> Failure | None:
    """Error of the latest scheduled savepoint that has ended; None if it completed, or there is no schedule any more."""
    if draft.observed.spec is None or draft.observed.spec.savepoints.schedule is None:
        return None
    ended = _newest_first(each for each in _scheduled(draft) if each.state not in _OPEN)
    if not ended or ended[0].state not in _LOST:
        return None
    return Failure(
        reason=FAILS,
        message=f"The latest scheduled savepoint, StateSnapshot {ended[0].name}, failed: {ended[0].error or 'no reason given'}",
    )


def report(draft: Draft) -> None:
    """Adds an event when a condition begins to say that scheduled savepoints fail."""
    now, before = ([each for each in status.conditions if each.reason == FAILS] for status in (draft.status, draft.observed.status))
    if now and not before:
        draft.record_event(FAILS, now[0].message, warning=True)


def _completed(draft: Draft, trigger: SnapshotTrigger, type_: SnapshotType) -> list[ObservedSnapshot]:
    """Completed snapshots of a kind, newest first."""
    found = (
        snapshot
        for snapshot in draft.observed.snapshots
        if (snapshot.trigger, snapshot.type, snapshot.state) == (trigger, type_, SnapshotState.COMPLETED) and not snapshot.deleting
    )
    return _newest_first(found)


def _newest_first(snapshots: Iterable[ObservedSnapshot]) -> list[ObservedSnapshot]:
    return sorted(snapshots, key=lambda snapshot: (snapshot.created_at, snapshot.name), reverse=True)


def _scheduled(draft: Draft) -> list[ObservedSnapshot]:
    return [snapshot for snapshot in draft.observed.snapshots if snapshot.trigger is SnapshotTrigger.SCHEDULED]
