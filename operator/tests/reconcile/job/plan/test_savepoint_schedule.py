"""Due times of scheduled savepoints, and the history of those that fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.config.savepoints import SavepointScheduleSpec
from statefulspark.config.values.cron import next_time
from statefulspark_operator.api.snapshots import SnapshotState
from statefulspark_operator.reconcile.job.plan import savepoint_schedule
from statefulspark_operator.reconcile.job.plan.savepoint_schedule import next_due
from tests.reconcile.job.plan.stable_jobs import running
from tests.reconcile.job.plan.world import World, condition

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LINES = ["* * * * *", "*/7 * * * *", "15,45 8-18 * * mon-fri", "0 3 * * *", "59 23 * * *", "0 0 1 * *"]


def one_by_one(line: str, last: datetime, now: datetime) -> datetime:
    """The latest due time that has passed, otherwise the next one, by looking at each."""
    due = next_time(line, last)
    while due <= now and (after := next_time(line, due)) <= now:
        due = after
    return due


@given(line=st.sampled_from(LINES), waited_s=st.floats(0, 3 * 86_400), began_s=st.floats(0, 40 * 86_400))
def test_a_cron_line_is_due_at_the_latest_time_that_has_passed(line: str, waited_s: float, began_s: float) -> None:
    last = NOON + timedelta(seconds=began_s)
    now = last + timedelta(seconds=waited_s)
    assert next_due(SavepointScheduleSpec(cron=line), last, now) == one_by_one(line, last, now)


def test_a_cron_line_after_half_a_year_is_not_followed_minute_by_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's loop has other jobs: two computed times, where there are 260,000 due ones in between."""
    calls: list[datetime] = []

    def counted(line: str, after: datetime) -> datetime:
        calls.append(after)
        return next_time(line, after)

    monkeypatch.setattr(savepoint_schedule, "next_time", counted)
    due = savepoint_schedule.next_due(SavepointScheduleSpec(cron="* * * * *"), NOON, NOON + timedelta(days=180, seconds=30))
    assert due == NOON + timedelta(days=180)
    assert len(calls) == 1


def let_savepoints_end(world: World, rounds: int, state: SnapshotState, error: str | None = None) -> None:
    """Time passes, and each savepoint that was asked for ends in ``state``."""
    for _ in range(rounds):
        for name, snapshot in list(world.snapshots.items()):
            if snapshot.state is SnapshotState.TRIGGER_PENDING:
                world.snapshots[name] = replace(snapshot, state=state, error=error, path="s3://b/s" if error is None else None)
        world.reconcile()
        world.tick(150)


def test_failing_scheduled_savepoints_leave_a_few_objects_and_the_reason_on_the_job() -> None:
    world = running(savepoints={"schedule": {"interval": "10m"}, "history": {"count": 5, "age": "24h"}})
    let_savepoints_end(world, 200, SnapshotState.FAILED, "AccessDenied: bucket b")
    failed = [each for each in world.snapshots.values() if each.state is SnapshotState.FAILED]
    assert len(failed) == 3
    assert max(each.created_at for each in failed) > world.now - timedelta(minutes=20), "the newest are kept"
    assert condition(world, "Degraded") == ("True", "SavepointsFail")
    assert "AccessDenied: bucket b" in next(each.message for each in world.status.conditions if each.type == "Degraded")
    assert world.events.count("SavepointsFail") == 1
    let_savepoints_end(world, 10, SnapshotState.COMPLETED)
    assert condition(world, "Degraded")[0] == "False"


def test_failed_savepoints_do_not_displace_the_completed_one() -> None:
    world = running(savepoints={"schedule": {"interval": "10m"}, "history": {"count": 1, "age": "1h"}})
    let_savepoints_end(world, 8, SnapshotState.COMPLETED)
    let_savepoints_end(world, 60, SnapshotState.ABANDONED, "the job went away")
    assert sum(each.state is SnapshotState.COMPLETED for each in world.snapshots.values()) == 1
    assert sum(each.state is SnapshotState.ABANDONED for each in world.snapshots.values()) == 3
