"""Driver pods that terminate before batches run: evicted before their containers start, with a lost node, or by the kubelet."""

from __future__ import annotations

import pytest

from statefulspark_operator.reconcile.job.observe.observation import DeadExecutor
from statefulspark_operator.reconcile.job.plan.actions import DeleteExecutor
from tests.manifests import defaults, manifest
from tests.reconcile.job.plan.stable_jobs import error_of, running
from tests.reconcile.job.plan.world import World

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")


def next_pod(world: World) -> None:
    """Goes on until the operator has made another pod."""
    made = world.pods_made
    for _ in range(60):
        world.reconcile()
        if world.pods_made > made:
            return
        world.tick()
    pytest.fail("no pod was made")


def test_a_first_driver_pod_that_is_evicted_before_it_starts_is_replaced_at_once() -> None:
    world = World(manifest())
    next_pod(world)
    world.evict()
    world.settle(rounds=10)
    assert world.pods_made == 2
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.error is None
    assert any("Evicted: The node was low on resource" in message for message in world.messages)


def test_the_error_of_an_evicted_pod_is_told_until_the_next_one_runs() -> None:
    world = World(manifest())
    next_pod(world)
    world.evict()
    world.reconcile()
    world.reconcile()
    assert error_of(world) == ("Evicted", "The driver pod terminated (Evicted: The node was low on resource: ephemeral-storage.)")


def test_a_recovering_job_survives_that_its_new_pod_is_evicted() -> None:
    """The node is lost, and the pod on the next one is evicted before it runs."""
    world = running()
    world.kill_driver()
    next_pod(world)
    world.evict()
    world.settle(rounds=120)
    assert world.status.lifecycle_state == "STABLE"
    assert "Failed" not in world.events


def test_executors_of_an_earlier_container_of_the_driver_are_deleted() -> None:
    """Spark deletes those that end, but a container of the driver does not know those of the one before it."""
    world = running()
    world.dead_executors = (DeadExecutor(pod="counts-exec-1", uid="u1"), DeadExecutor(pod="counts-exec-2", uid="u2"))
    assert [action.pod for action in world.reconcile().actions if isinstance(action, DeleteExecutor)] == ["counts-exec-1", "counts-exec-2"]
    assert not world.reconcile().actions


def test_an_upgrade_whose_pod_is_evicted_goes_on_with_the_new_spec() -> None:
    world = running()
    world.change(image="shop/counts:2")
    next_pod(world)
    world.evict()
    world.settle(rounds=120)
    assert world.images == ["shop/counts:1", "shop/counts:2", "shop/counts:2"]
    assert world.status.lifecycle_state == "STABLE"
    assert "RollingBack" not in world.events


def test_an_idle_job_whose_first_pod_was_evicted_becomes_stable() -> None:
    """An eviction is no restart that a checkpoint has to disprove."""
    world = running()
    world.waits = True
    world.change(image="shop/counts:2")
    next_pod(world)
    world.evict()
    world.settle(rounds=120)
    assert world.status.lifecycle_state == "STABLE"


def test_pods_that_are_evicted_for_an_hour_are_replaced_at_longer_intervals_and_the_job_waits() -> None:
    world = World(manifest())
    next_pod(world)
    for _ in range(240):
        if world.pod is not None and not world.pod.over:
            world.evict()
        world.reconcile()
        if world.pod is not None and not world.pod.over:
            world.evict()
        world.tick(15)
    assert world.status.lifecycle_state == "DEPLOYING", "no driver ran, so nothing is known of the spec"
    assert 20 < world.pods_made < 100
    world.settle()
    assert world.status.lifecycle_state == "STABLE"


def test_an_upgrade_whose_drivers_run_and_are_evicted_each_time_is_rolled_back_in_time() -> None:
    world = running(upgradeTimeout="2m")
    world.change(image="shop/counts:2")
    began = world.now
    while "RollingBack" not in world.events:
        world.reconcile()
        if world.pod is not None and not world.pod.over and world.pod.started and world.images[-1] == "shop/counts:2":
            world.evict()
        world.tick()
        assert (world.now - began).total_seconds() < 180
    world.settle(rounds=120)
    assert world.images[-1] == "shop/counts:1"
    assert world.status.lifecycle_state == "ROLLED_BACK"
    assert error_of(world)[0] == "Evicted"


def test_the_last_stable_pod_of_a_rollback_is_replaced_too() -> None:
    world = running()
    world.broken_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    next_pod(world)
    next_pod(world)
    assert world.images == ["shop/counts:1", "shop/counts:2", "shop/counts:1"]
    world.evict()
    world.settle(rounds=120)
    assert world.status.lifecycle_state == "ROLLED_BACK"
    assert error_of(world)[0] == "UserFunction", "the error is that of the failed upgrade"
