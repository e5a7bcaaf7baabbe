"""Rescaling: in place or with a restart, and what is refused."""

from __future__ import annotations

import pytest

from tests.manifests import defaults, manifest
from tests.reconcile.job.plan.stable_jobs import running
from tests.reconcile.job.plan.world import World, condition

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")


def test_scaling_changes_the_running_driver() -> None:
    world = running()
    world.change(parallelism=3)
    world.settle()
    assert world.pods_made == 1
    assert world.process is not None
    assert world.process.parallelism == 3
    assert world.applied_parallelism == 3, "a driver that the node starts again has the new parallelism"
    assert world.status.parallelism == 3
    assert "Rescaled" in world.events
    assert any("63 of 128 key groups" in message for message in world.messages)
    assert "Rescaled from 2 to 3 slots: 1.5 MiB of state restored, paused for 3.9 s" in world.messages


def test_a_rescale_has_ended_when_the_driver_says_so_or_its_time_is_over() -> None:
    """Until the first batch after the pause the driver does not know how long it was."""
    world = running(upgradeTimeout="10m")
    world.endless_rescale = True
    world.change(parallelism=3)
    world.settle(rounds=10)
    assert world.status.lifecycle_state == "RESCALING"
    assert "Rescaled" not in world.events
    world.settle(rounds=1000)
    assert "Rescaled" in world.events
    assert world.status.lifecycle_state == "STABLE"
    assert world.pods_made == 1


def test_the_plan_of_a_rescale_is_in_the_status_while_it_is_under_way() -> None:
    world = running()
    world.change(parallelism=3)
    world.reconcile()
    transition = world.status.transition
    assert transition is not None
    assert transition.moved_key_groups == 63
    assert [(move.first, move.last, move.from_slot, move.to_slot) for move in transition.moves] == [(43, 63, 0, 1), (86, 127, 1, 2)]


def test_scaling_without_room_leaves_the_job_running_and_tries_again() -> None:
    world = running()
    world.failing_rescales = 3
    world.change(parallelism=4)
    world.settle(rounds=20)
    assert world.pods_made == 1
    assert condition(world, "Stalled") == ("True", "RescaleFailed")
    assert world.process is not None
    assert world.process.parallelism == 2
    world.settle(rounds=300)
    assert world.process.parallelism == 4
    assert world.pods_made == 1, "the driver never ended"
    assert world.events.count("RescaleFailed") == 1
    assert condition(world, "Stalled")[0] == "False"


def test_scaling_with_restart_makes_a_new_driver() -> None:
    world = running(rescaleMode="restart")
    world.change(parallelism=3)
    world.settle()
    assert world.pods_made == 2
    assert world.status.parallelism == 3
    assert world.status.lifecycle_state == "STABLE"


@pytest.mark.parametrize("mode", ["in-place", "restart"])
def test_slots_beyond_those_that_flinks_default_was_for_are_a_rescale(mode: str) -> None:
    """Flink's default for 80 slots is 128 key groups and for 90 it is 256; the state keeps its 128."""
    world = World(manifest(rescaleMode=mode, parallelism=80))
    world.settle()
    world.change(parallelism=90)
    world.settle()
    assert condition(world, "Valid")[0] == "True"
    assert world.process is not None
    assert world.process.parallelism == 90
    assert world.status.max_parallelism == 128
    assert world.status.lifecycle_state == "STABLE"
    assert "Rescaled" in world.events or mode == "restart"


def test_more_slots_than_the_state_has_key_groups_are_refused(defaults: bool) -> None:
    """Before anything is stopped, with the number that would do."""
    world = running(parallelism=80)
    world.change(parallelism=200)
    world.settle()
    assert condition(world, "Valid") == ("False", "InvalidSpec" if defaults else "ImmutableField")
    assert "128" in next(each.message for each in world.status.conditions if each.type == "Valid")
    assert world.pods_made == 1
    assert world.process is not None
    assert world.process.parallelism == 80


def test_more_slots_for_a_job_that_has_not_said_its_key_groups_yet(defaults: bool) -> None:
    """Whatever it started with, planning goes on; only a start finds out how many key groups the state has."""
    world = World(manifest(parallelism=80), deaf=True)
    world.settle(rounds=5)
    world.change(parallelism=200)
    world.settle(rounds=5)
    world.deaf = False
    world.settle(rounds=60)
    assert world.pods_made == (1 if defaults else 2)
