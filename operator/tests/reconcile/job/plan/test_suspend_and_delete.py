"""Suspending, deleting and savepoints."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from statefulspark_operator.api.snapshots import SnapshotState
from tests.manifests import defaults
from tests.reconcile.job.plan.stable_jobs import running
from tests.reconcile.job.plan.world import World, condition

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")

FOLDERS = {"dir": "s3://bucket/checkpoints", "savepointDir": "s3://bucket/savepoints"}


def shown_lag(world: World) -> int | None:
    """Rows that the sources are behind."""
    return world.status.lag.rows if world.status.lag is not None else None


def test_suspend_keeps_the_state_and_resume_goes_on() -> None:
    """The lag of the sources goes with the driver, and comes back with it."""
    world = running(upgradeMode="savepoint")
    assert shown_lag(world)
    world.change(state="suspended")
    world.settle()
    assert world.pod is None
    assert world.savepoints == 1
    assert world.status.lifecycle_state == "SUSPENDED"
    assert condition(world, "Ready") == ("True", "Suspended")
    assert shown_lag(world) is None
    world.change(state="running")
    world.settle()
    assert shown_lag(world)
    assert world.status.lifecycle_state == "STABLE"
    assert world.pods_made == 2


def test_deletion_takes_the_savepoint_that_was_asked_for() -> None:
    world = running(savepointOnDeletion=True)
    world.deleting = True
    world.settle()
    assert world.gone
    assert world.savepoints == 1
    assert world.pod is None


def deleting(**retention: object) -> World:
    """A job with two checkpoints that is being deleted."""
    world = running(checkpointing={**FOLDERS, "retention": {"count": 2, **retention}})
    assert len(world.kept) == 2
    world.deleting = True
    return world


def test_deletion_keeps_checkpoints_by_default() -> None:
    world = deleting()
    world.settle()
    assert world.gone
    assert len(world.kept) == 2
    assert not {"CheckpointsDeleted", "CheckpointsKept"}.intersection(world.events)
    assert "Its state is kept in storage" in (world.status.lifecycle_history[0].message or "")


def test_deletion_cancels_the_job_if_its_checkpoints_are_not_retained() -> None:
    """Deleting the resource is canceling, as with Flink's DELETE_ON_CANCELLATION."""
    world = deleting(onCancellation="DELETE")
    world.settle()
    assert world.gone
    assert world.kept == []
    assert world.pod is None
    assert "CheckpointsDeleted" in world.events
    assert "savepoints are kept" in (world.status.lifecycle_history[0].message or "")


@pytest.mark.parametrize("trouble", ["deaf", "no pod", "storage", "failing", "slow"])
def test_checkpoints_that_the_driver_cannot_delete(trouble: str) -> None:
    """The deletion ends all the same, and an event says that they are kept, and where."""
    world = deleting(onCancellation="DELETE")
    if trouble == "deaf":
        world.deaf = True
    elif trouble == "no pod":
        world.kill_driver()
    elif trouble == "storage":
        world.deletes_checkpoints = False
    elif trouble == "failing":
        world.failing_stops = 1_000_000
    else:
        world.hangs = True
    world.settle(rounds=400, seconds=5.0)
    assert world.gone
    assert world.pod is None
    assert world.kept
    assert "CheckpointsKept" in world.events
    assert "s3://bucket/" in world.messages[world.events.index("CheckpointsKept")]


def test_a_final_savepoint_stops_the_job_and_does_not_cancel_it() -> None:
    """So its checkpoints stay."""
    world = running(savepointOnDeletion=True, checkpointing={**FOLDERS, "retention": {"onCancellation": "DELETE"}})
    world.deleting = True
    world.settle()
    assert world.gone
    assert world.savepoints == 1
    assert world.kept


def test_a_stateless_upgrade_keeps_the_state_that_a_rollback_returns_to() -> None:
    """Whatever becomes of a job that is canceled."""
    world = running(upgradeMode="stateless", checkpointing={**FOLDERS, "retention": {"onCancellation": "DELETE"}})
    world.change(image="shop/counts:2")
    world.settle()
    assert world.images[-1] == "shop/counts:2"
    assert world.canceled_and_kept == 1
    assert world.kept


@pytest.mark.parametrize("trouble", ["deaf", "failing", "stuck", "suspended"])
def test_deletion_never_hangs(trouble: str) -> None:
    world = running(savepointOnDeletion=True)
    if trouble == "deaf":
        world.deaf = True
    elif trouble == "failing":
        world.failing_stops = 1_000_000
    elif trouble == "stuck":
        world.stuck = True
    else:
        world.change(state="suspended")
        world.settle()
    world.deleting = True
    world.settle(rounds=400, seconds=5.0)
    assert world.gone
    assert world.pod is None


def test_a_pod_on_a_lost_node_is_given_up_after_its_grace_and_the_job_goes_on() -> None:
    world = running()
    world.stuck = True
    world.change(image="shop/counts:2")
    world.settle(rounds=20, seconds=5.0)
    assert "ForceDeleted" not in world.events, "its grace is not over"
    world.settle(rounds=100, seconds=5.0)
    assert "ForceDeleted" in world.events
    assert world.images[-1] == "shop/counts:2"


@pytest.mark.parametrize("grace_s", [60, 300])
def test_a_driver_gets_the_grace_period_of_its_pod(grace_s: int) -> None:
    """For its last checkpoint; the operator's 60 s are the least."""
    world = running()
    assert world.pod is not None
    world.pod = replace(world.pod, stop_grace_s=grace_s)
    world.stuck = True
    world.change(image="shop/counts:2")
    while world.pod.gone_by is None:
        world.reconcile()
        world.tick()
    assert timedelta(seconds=grace_s - 1) <= world.pod.gone_by - world.now <= timedelta(seconds=grace_s)


def test_a_savepoint_nonce_takes_one_savepoint() -> None:
    world = running()
    world.change(savepointNonce=7)
    world.settle()
    assert list(world.snapshots) == ["counts-nonce-7"]
    world.snapshots.clear()
    world.settle()
    assert not world.snapshots, "once acted on, a deleted savepoint is not taken again"


def test_scheduled_savepoints_are_taken_one_at_a_time_and_pruned() -> None:
    world = running(savepoints={"schedule": {"interval": "1min", "format": "canonical"}, "history": {"count": 2, "age": "1h"}})
    for _ in range(60):
        world.settle(rounds=1, seconds=20.0)
        for name, snapshot in list(world.snapshots.items()):
            world.snapshots[name] = replace(snapshot, state=SnapshotState.COMPLETED)
    assert len(world.snapshots) == 2
    ages = sorted(world.now - snapshot.created_at for snapshot in world.snapshots.values())
    assert ages[0] <= timedelta(seconds=80)
    assert ages[1] - ages[0] >= timedelta(seconds=55)
    assert {taken.format for taken in world.taken} == {"canonical"}
