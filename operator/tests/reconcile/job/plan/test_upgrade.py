"""Upgrades: stop with state, start, roll back."""

from __future__ import annotations

import pytest

from tests.manifests import defaults, manifest
from tests.reconcile.job.plan.stable_jobs import running
from tests.reconcile.job.plan.world import World, condition

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")


@pytest.mark.parametrize(("mode", "savepoints"), [("savepoint", 1), ("last-state", 0), ("stateless", 0)])
def test_an_upgrade_stops_the_old_driver_with_its_state_before_it_starts_the_new_one(mode: str, savepoints: int) -> None:
    world = running(upgradeMode=mode)
    job_id = world.status.job_id
    world.change(image="shop/counts:2")
    world.settle()
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert world.savepoints == savepoints
    assert world.status.lifecycle_state == "STABLE"
    assert not world.two_drivers
    assert (world.status.job_id == job_id) is (mode != "stateless"), "a job without its state has a new folder"


def test_an_upgrade_that_cannot_stop_the_job_leaves_it_running_and_tries_again() -> None:
    world = running(upgradeMode="savepoint")
    world.failing_stops = 3
    world.change(image="shop/counts:2")
    world.settle(rounds=20)
    assert world.images == ["shop/counts:1"]
    assert world.process is not None, "the old version runs on"
    assert condition(world, "Stalled") == ("True", "StopFailed")
    world.settle(rounds=300)
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert world.events.count("StopFailed") == 1, "a failure is told once, not at each attempt"
    assert condition(world, "Stalled")[0] == "False"


def test_an_upgrade_of_a_driver_that_does_not_answer_goes_on_from_the_last_state() -> None:
    world = running(upgradeMode="savepoint")
    world.deaf = True
    world.change(image="shop/counts:2")
    world.settle(rounds=45)
    world.deaf = False
    world.settle()
    assert "LastStateFallback" in world.events
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert world.status.lifecycle_state == "STABLE"


def test_an_upgrade_of_a_broken_driver_that_cannot_stop_goes_on_from_the_last_state() -> None:
    world = running(upgradeMode="savepoint")
    world.driver_state = "RESCALING"
    world.failing_stops = 1
    world.change(image="shop/counts:2")
    world.settle(rounds=5)
    world.driver_state = "RUNNING"
    world.settle()
    assert "LastStateFallback" in world.events
    assert world.images == ["shop/counts:1", "shop/counts:2"]


def test_a_slow_stop_does_not_count_against_the_start() -> None:
    world = running(upgradeMode="savepoint", upgradeTimeout="1m")
    world.failing_stops = 3
    world.change(image="shop/counts:2")
    world.settle(rounds=300)
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert "RollingBack" not in world.events


def test_a_failed_upgrade_rolls_back_to_the_last_stable_spec() -> None:
    world = running()
    world.broken_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    world.settle(rounds=120)
    assert world.images == ["shop/counts:1", "shop/counts:2", "shop/counts:1"]
    assert world.status.lifecycle_state == "ROLLED_BACK"
    assert condition(world, "Ready")[0] == "False"
    assert condition(world, "Degraded") == ("True", "RolledBack")
    assert world.status.error is not None
    assert "boom" in world.status.error.message
    world.change(image="shop/counts:3")
    world.settle()
    assert world.images[-1] == "shop/counts:3"
    assert world.status.lifecycle_state == "STABLE"


@pytest.mark.parametrize("die_after", [None, 0, 2, 4, 6])
def test_a_failed_stateless_upgrade_goes_back_to_the_state_of_the_last_stable_spec(die_after: int | None) -> None:
    """The failed version had a folder of its own. Also when another stateless version fails before, and with operators that die."""
    world = running(upgradeMode="stateless", upgradeTimeout="1min")
    stable = world.status.job_id
    world.broken_images = frozenset({"shop/counts:2", "shop/counts:3"})
    world.change(image="shop/counts:2")
    world.die_after = die_after
    world.settle(rounds=40)
    world.change(image="shop/counts:3")
    world.settle(rounds=80)
    assert world.images[-1] == "shop/counts:1"
    assert world.status.lifecycle_state == "ROLLED_BACK"
    assert len({*world.folders}) == 3, "a version without state never gets the folder of another"
    assert world.folders[-1] == stable == world.status.job_id


def test_a_checkpoint_of_another_folder_is_not_the_last_one() -> None:
    """A version without state begins without a checkpoint: what the status names is in the job's folder."""
    world = running(upgradeMode="stateless")
    world.own_checkpoints = False
    world.change(image="shop/counts:2")
    world.settle(rounds=8)
    assert world.status.job_id == world.folders[-1] != world.folders[0]
    assert world.status.last_checkpoint is None


def test_without_rollback_a_failed_upgrade_waits_for_a_person() -> None:
    world = running(rollback=False)
    world.broken_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    world.settle()
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert world.status.lifecycle_state == "FAILED"


def test_a_restart_strategy_that_is_written_down_is_an_upgrade() -> None:
    """It means more than its default: with it, errors of the job's own code are followed by restarts too."""
    world = running()
    world.change(restartStrategy={})
    world.settle()
    assert world.pods_made == 2
    assert any("restartStrategy" in message for message in world.messages)


def test_a_default_that_is_written_down_changes_nothing() -> None:
    """The API server writes defaults into objects."""
    world = running()
    world.change(upgradeMode="last-state", rollback=True, driver={}, executor={"memory": "4Gi"})
    world.settle()
    assert world.pods_made == 1
    assert world.status.lifecycle_state == "STABLE"


def test_a_job_that_never_ran_is_deployed_again_and_not_upgraded() -> None:
    world = World(manifest(image="bad"), broken_images=frozenset({"bad"}))
    world.settle()
    world.change(image="good")
    world.settle()
    assert world.images == ["bad", "good"]
    assert world.status.lifecycle_state == "STABLE"
    assert not any("upgraded" in message for message in world.messages)
    assert "Upgraded" not in world.events
    assert world.events.count("Deployed") == 1
