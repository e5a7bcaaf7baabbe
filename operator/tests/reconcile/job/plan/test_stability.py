"""An upgrade that runs must also complete a checkpoint; else the last stable spec comes back, whoever dies on the way."""

from __future__ import annotations

import contextlib

import pytest

from tests.manifests import manifest
from tests.reconcile.job.plan.world import OperatorDiedError, World, condition


def running(**spec: object) -> World:
    world = World(manifest(upgradeTimeout="1min", **spec))
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    return world


def go_on(world: World, rounds: int) -> None:
    for _ in range(rounds):
        with contextlib.suppress(OperatorDiedError):
            world.reconcile()
        world.tick()


@pytest.mark.parametrize("die_after", [None, *range(16)])
def test_an_upgrade_that_runs_and_never_completes_a_checkpoint_is_rolled_back(die_after: int | None) -> None:
    """Its driver says RUNNING all the time. Not before its time is over; then with an event, a condition and a reason that names the remedy."""
    world = running(restartStrategy={"type": "fixed-delay"})
    world.stuck_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    go_on(world, 30)
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert world.status.lifecycle_state == "RUNNING"
    go_on(world, 25)
    world.die_after = die_after
    go_on(world, 60)
    assert world.images == ["shop/counts:1", "shop/counts:2", "shop/counts:1"]
    assert world.status.lifecycle_state == "ROLLED_BACK"
    assert not world.two_drivers
    assert condition(world, "Degraded") == ("True", "RolledBack")
    assert world.status.error is not None
    assert world.status.error.reason == "NotStable"
    if die_after is None:
        assert world.events.count("RollingBack") == 1
    world.change(image="shop/counts:3")
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert world.images[-1] == "shop/counts:3"


def test_the_time_does_not_begin_anew_when_the_driver_is_lost_again_and_again() -> None:
    world = running()
    world.stuck_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    for number in range(150):
        go_on(world, 1)
        if number % 20 == 19 and world.process is not None and world.process.image == "shop/counts:2":
            world.kill_driver()
    assert world.images[-1] == "shop/counts:1"
    assert world.status.lifecycle_state == "ROLLED_BACK"


def test_a_driver_that_falls_silent_before_its_first_checkpoint_is_rolled_back() -> None:
    """Its container fails again and again, and the node starts it each time."""
    world = running()
    world.stuck_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    go_on(world, 20)
    world.deaf = True
    go_on(world, 60)
    world.deaf = False
    go_on(world, 20)
    assert world.status.lifecycle_state == "ROLLED_BACK"


def test_a_job_whose_own_checkpoints_come_too_seldom_is_asked_for_one() -> None:
    world = running()
    world.own_checkpoints = False
    world.change(image="shop/counts:2")
    go_on(world, 80)
    assert world.status.lifecycle_state == "STABLE"
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert world.asked_checkpoints == 1
    assert world.status.reconciliation is not None
    assert world.status.reconciliation.stable_by is None


def test_a_first_version_and_a_rescale_have_nothing_to_prove() -> None:
    """There is nothing to go back to that would do better."""
    world = World(manifest(upgradeTimeout="1min"), own_checkpoints=False)
    go_on(world, 120)
    assert world.status.lifecycle_state == "RUNNING"
    assert world.images == ["shop/counts:1"]
    world = running(rescaleMode="restart")
    world.own_checkpoints = False
    world.change(parallelism=3)
    go_on(world, 120)
    assert world.pods_made == 2
    assert not world.asked_checkpoints
    assert "RollingBack" not in world.events


def test_without_rollback_an_unproved_upgrade_runs_on() -> None:
    world = running(rollback=False)
    world.stuck_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    go_on(world, 200)
    assert world.status.lifecycle_state == "RUNNING"
    assert world.images == ["shop/counts:1", "shop/counts:2"]
