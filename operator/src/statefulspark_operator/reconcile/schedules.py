"""Savepoints by schedule, and which of them are kept. Pure.

A scheduled savepoint is a StateSnapshot whose name holds the moment it was due, so two operators, or one that was started again, make one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from statefulspark.config.cron import next_time
from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.savepoints import SavepointScheduleSpec
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType
from statefulspark_operator.reconcile.actions import DeleteSnapshot, TakeSnapshot
from statefulspark_operator.reconcile.lifecycle import Draft
from statefulspark_operator.reconcile.observation import SnapshotSeen

_OPEN: Final = frozenset({SnapshotState.TRIGGER_PENDING, SnapshotState.IN_PROGRESS})


def keep_schedule(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Take a savepoint that is due; a running job only, and one at a time. Missed ones are not made up for."""
    schedule, driver = spec.savepoints.schedule, draft.seen.driver
    if schedule is None or driver is None or driver.state != "RUNNING":
        return
    scheduled = _scheduled(draft)
    if any(snapshot.state in _OPEN for snapshot in scheduled):
        return
    started = max((snapshot.created_at for snapshot in scheduled), default=draft.status.lifecycle_since or draft.now)
    due = next_due(schedule, started, draft.now)
    if due > draft.now:
        draft.look_again((due - draft.now).total_seconds())
        return
    draft.do(
        TakeSnapshot(name=f"{draft.seen.name}-scheduled-{due.strftime('%Y%m%d%H%M%S')}", trigger=SnapshotTrigger.SCHEDULED, dispose=True)
    )


def next_due(schedule: SavepointScheduleSpec, last: datetime, now: datetime) -> datetime:
    """When the savepoint after the one of ``last`` is due: the latest moment that has passed, else the next to come."""
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
    """Delete snapshots that nobody asked for beyond count and age; the newest completed savepoint of each kind always stays.

    Scheduled savepoints go with their files. Those of stops go as objects only: they are what a person may fall back on.
    """
    history = spec.savepoints.history
    oldest = draft.now - timedelta(milliseconds=history.age)
    for trigger in (SnapshotTrigger.SCHEDULED, SnapshotTrigger.UPGRADE):
        for place, snapshot in enumerate(_completed(draft, trigger, SnapshotType.SAVEPOINT)):
            if place > 0 and (place >= history.count or snapshot.created_at < oldest):
                draft.do(DeleteSnapshot(name=snapshot.name))


def _completed(draft: Draft, trigger: SnapshotTrigger, type_: SnapshotType) -> list[SnapshotSeen]:
    """Completed snapshots of a kind, newest first."""
    found = (
        snapshot
        for snapshot in draft.seen.snapshots
        if (snapshot.trigger, snapshot.type, snapshot.state) == (trigger, type_, SnapshotState.COMPLETED) and not snapshot.deleting
    )
    return sorted(found, key=lambda snapshot: (snapshot.created_at, snapshot.name), reverse=True)


def _scheduled(draft: Draft) -> list[SnapshotSeen]:
    return [snapshot for snapshot in draft.seen.snapshots if snapshot.trigger is SnapshotTrigger.SCHEDULED]
