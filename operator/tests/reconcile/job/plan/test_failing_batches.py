"""A job whose every batch fails is not healthy: not Ready, never STABLE, Degraded with the error, and given up in the end."""

from __future__ import annotations

import contextlib

import pytest

from tests.manifests import defaults, manifest
from tests.reconcile.job.plan.world import OperatorDiedError, World, condition

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")


def go_on(world: World, rounds: int) -> None:
    for _ in range(rounds):
        with contextlib.suppress(OperatorDiedError):
            world.reconcile()
        world.tick()


def failing(**spec: object) -> World:
    """A new job with a sink that raises."""
    return World(manifest(upgradeTimeout="1min", image="bad", **spec), failing_images=frozenset({"bad"}))


def running(**spec: object) -> World:
    world = World(manifest(upgradeTimeout="1min", **spec))
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    return world


def test_a_job_whose_every_batch_fails_is_never_ready_nor_stable() -> None:
    """Its driver says RUNNING all the time, and a checkpoint can be taken between two attempts."""
    world = failing()
    for _ in range(50):
        go_on(world, 1)
        assert all(each.type != "Ready" or each.status == "False" for each in world.status.conditions)
    assert "STABLE" not in [change.state for change in world.status.lifecycle_history]
    assert condition(world, "Ready") == ("False", "BatchesFail")
    assert condition(world, "Running") == ("False", "BatchesFail")
    assert condition(world, "Degraded") == ("True", "BatchesFail")
    assert world.status.error is not None
    assert world.status.error.message == "Batches keep failing (Unavailable): the sink is closed"
    assert world.events.count("BatchesFail") == 1, "it is told once, not with every failure"


def test_a_first_version_whose_batches_fail_is_given_up_after_the_timeout_and_comes_back_by_itself() -> None:
    """The driver is left to try on: a sink that comes back ends it."""
    world = failing()
    go_on(world, 45)
    assert world.status.lifecycle_state == "RUNNING"
    go_on(world, 60)
    assert world.status.lifecycle_state == "FAILED"
    assert condition(world, "Stalled") == ("True", "BatchesFail")
    assert world.events.count("Failed") == 1
    assert world.images == ["bad"]
    world.failing_images = frozenset()
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.error is None
    assert condition(world, "Ready") == ("True", "Running")
    assert condition(world, "Degraded")[0] == "False"
    assert world.images == ["bad"]


@pytest.mark.parametrize("die_after", [None, *range(0, 16, 3)])
def test_an_upgrade_whose_batches_fail_is_rolled_back_with_their_error(die_after: int | None) -> None:
    world = running()
    world.failing_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    go_on(world, 30)
    assert condition(world, "Degraded") == ("True", "BatchesFail")
    world.die_after = die_after
    go_on(world, 90)
    assert world.images == ["shop/counts:1", "shop/counts:2", "shop/counts:1"]
    assert world.status.lifecycle_state == "ROLLED_BACK"
    assert world.status.error is not None
    assert "the sink is closed" in world.status.error.message
    assert not world.two_drivers


def test_a_stable_job_whose_sink_goes_away_says_so_and_is_stable_again_when_it_is_back() -> None:
    world = running()
    world.failing_images = frozenset({"shop/counts:1"})
    go_on(world, 20)
    assert condition(world, "Ready") == ("False", "BatchesFail")
    assert world.status.lifecycle_state == "RUNNING"
    go_on(world, 60)
    assert world.status.lifecycle_state == "FAILED"
    world.failing_images = frozenset()
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert world.pods_made == 1, "nothing was restarted"


def test_a_job_that_was_given_up_for_its_batches_still_gets_a_new_driver_for_a_lost_one() -> None:
    """Since its driver is what tries on. The time since when it fails does not begin anew."""
    world = failing()
    go_on(world, 100)
    assert world.status.lifecycle_state == "FAILED"
    assert world.status.error is not None
    since = world.status.error.since
    world.kill_driver()
    go_on(world, 30)
    assert world.pods_made == 2
    assert world.status.error.since == since
    assert condition(world, "Ready")[0] == "False"


@pytest.mark.parametrize("mode", ["last-state", "savepoint", "stateless"])
def test_a_job_whose_batches_fail_can_be_upgraded(mode: str) -> None:
    """No stop with state succeeds, since it waits for the end of a batch; its state and that batch are in storage."""
    world = failing(upgradeMode=mode)
    go_on(world, 20)
    world.change(image="good")
    world.settle(rounds=60)
    assert world.images == ["bad", "good"]
    assert world.status.lifecycle_state == "STABLE"


@pytest.mark.parametrize("rounds", [20, 100])
def test_a_job_whose_batches_fail_can_be_rescaled(rounds: int) -> None:
    """More slots may be what it lacks. Also when it was given up."""
    world = failing()
    go_on(world, rounds)
    world.change(parallelism=3)
    go_on(world, 30)
    assert world.process is not None
    assert world.process.parallelism == 3
    assert world.pods_made == 2
    assert condition(world, "Ready") == ("False", "BatchesFail")
    world.failing_images = frozenset()
    world.settle()
    assert world.status.lifecycle_state == "STABLE"


def test_a_job_whose_batches_fail_can_be_suspended_and_deleted() -> None:
    world = failing()
    go_on(world, 20)
    world.change(state="suspended")
    go_on(world, 30)
    assert world.status.lifecycle_state == "SUSPENDED"
    world = failing(savepointOnDeletion=True)
    go_on(world, 20)
    world.deleting = True
    go_on(world, 30)
    assert world.gone


def test_a_job_without_new_rows_is_ready_and_stable() -> None:
    """It is known to wait, so that there is no batch to be proved by."""
    world = World(manifest(), waits=True)
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert condition(world, "Ready") == ("True", "Running")


def test_before_its_first_batch_a_job_is_not_ready() -> None:
    """However long that takes: nothing is wrong, and nothing is known."""
    world = World(manifest(), stuck_images=frozenset({"shop/counts:1"}))
    go_on(world, 40)
    assert condition(world, "Ready") == ("False", "WaitingForFirstBatch")
    assert condition(world, "Degraded")[0] == "False"
    assert world.status.lifecycle_state == "RUNNING"
