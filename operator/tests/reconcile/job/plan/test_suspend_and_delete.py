"""Suspending, deleting and savepoints."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from statefulspark_operator.api.snapshots import SnapshotState
from tests.manifests import defaults
from tests.reconcile.job.plan.stable_jobs import running
from tests.reconcile.job.plan.world import condition

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")


def test_suspend_keeps_the_state_and_resume_goes_on() -> None:
    world = running(upgradeMode="savepoint")
    world.change(state="suspended")
    world.settle()
    assert world.pod is None
    assert world.savepoints == 1
    assert world.status.lifecycle_state == "SUSPENDED"
    assert condition(world, "Ready") == ("True", "Suspended")
    world.change(state="running")
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert world.pods_made == 2


def test_deletion_takes_the_savepoint_that_was_asked_for() -> None:
    world = running(savepointOnDeletion=True)
    world.deleting = True
    world.settle()
    assert world.gone
    assert world.savepoints == 1
    assert world.pod is None


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


def test_a_savepoint_nonce_takes_one_savepoint() -> None:
    world = running()
    world.change(savepointNonce=7)
    world.settle()
    assert list(world.snapshots) == ["counts-nonce-7"]
    world.snapshots.clear()
    world.settle()
    assert not world.snapshots, "once acted on, a deleted savepoint is not taken again"


def test_scheduled_savepoints_are_taken_one_at_a_time_and_pruned() -> None:
    world = running(savepoints={"schedule": {"interval": "1min"}, "history": {"count": 2, "age": "1h"}})
    for _ in range(60):
        world.settle(rounds=1, seconds=20.0)
        for name, snapshot in list(world.snapshots.items()):
            world.snapshots[name] = replace(snapshot, state=SnapshotState.COMPLETED)
    assert len(world.snapshots) == 2
    ages = sorted(world.now - snapshot.created_at for snapshot in world.snapshots.values())
    assert ages[0] <= timedelta(seconds=80)
    assert ages[1] - ages[0] >= timedelta(seconds=55)
