"""Jobs whose executors do not run: conditions, error and events name the cause, and Running is true only while batches are processed."""

from __future__ import annotations

import pytest

from statefulspark_operator.api.drivers import Failure
from tests.manifests import defaults, manifest
from tests.reconcile.job.plan.stable_jobs import error_of, running
from tests.reconcile.job.plan.world import World, condition

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")

SCHEDULING = Failure(reason="Unschedulable", message="Executor counts-exec-2: 0/3 nodes are available: Insufficient memory")
QUOTA = Failure(reason="PodRefused", message='pods "counts-exec" is forbidden: exceeded quota: team')


def message(world: World, type_: str) -> str:
    return next(each.message for each in world.status.conditions if each.type == type_)


@pytest.mark.parametrize("cause", [SCHEDULING, QUOTA])
@pytest.mark.parametrize("state", ["CREATED", "RUNNING", "deaf"])
def test_a_deployment_without_its_executors_names_the_cause_while_it_waits(cause: Failure, state: str) -> None:
    world = World(manifest(), missing_slots=1, executor_trouble=cause, driver_state=state, deaf=state == "deaf")
    world.settle(rounds=20)
    assert world.status.lifecycle_state == "DEPLOYING"
    for type_, status in (("Ready", "False"), ("Running", "False"), ("Degraded", "True")):
        assert condition(world, type_) == (status, "SlotsMissing")
        assert cause.message in message(world, type_)
    assert error_of(world)[0] == "SlotsMissing"
    assert world.events.count("SlotsMissing") == 1
    world.missing_slots, world.executor_trouble, world.deaf, world.driver_state = 0, None, False, "RUNNING"
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.error is None
    assert condition(world, "Degraded") == ("False", "NotDegraded")


def test_a_running_job_that_loses_its_slots_is_not_running_and_says_why() -> None:
    world = running()
    world.missing_slots = 2
    world.settle(rounds=3)
    assert condition(world, "Running") == ("False", "SlotsMissing")
    assert message(world, "Degraded") == "2 of 2 slots are not running"
    assert "SlotsMissing" not in world.events, "a loss of a few seconds has no event"
    world.executor_trouble = SCHEDULING
    world.settle(rounds=10)
    assert "Insufficient memory" in message(world, "Degraded")
    assert world.events.count("SlotsMissing") == 1
    world.executor_trouble = QUOTA
    world.settle(rounds=10)
    assert "exceeded quota" in message(world, "Running")
    assert world.events.count("SlotsMissing") == 2, "another cause is another event"
    world.missing_slots, world.executor_trouble = 0, None
    world.settle(rounds=10)
    assert condition(world, "Running") == ("True", "Running")


def test_a_deployment_that_never_gets_its_executors_fails_with_the_cause() -> None:
    world = World(manifest(upgradeTimeout="1m"), missing_slots=1, executor_trouble=SCHEDULING)
    world.settle(rounds=90)
    assert world.status.lifecycle_state == "FAILED"
    assert "Insufficient memory" in error_of(world)[1]


def test_a_rollback_that_waits_for_its_slots_keeps_the_error_of_the_upgrade() -> None:
    world = running(upgradeTimeout="1m")
    world.missing_slots, world.executor_trouble = 1, SCHEDULING
    world.change(image="shop/counts:2")
    for _ in range(150):
        world.reconcile()
        world.tick()
        if world.images[-1] != "shop/counts:2" and len(world.images) > 2:
            world.executor_trouble = QUOTA
            break
    for _ in range(5):
        world.reconcile()
        world.tick()
    assert world.status.lifecycle_state == "ROLLING_BACK"
    assert "Insufficient memory" in error_of(world)[1]
    world.missing_slots, world.executor_trouble = 0, None
    world.settle()
    assert world.status.lifecycle_state == "ROLLED_BACK"
    assert "Insufficient memory" in error_of(world)[1]
