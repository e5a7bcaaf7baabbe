"""Driver pods that the API server refuses for good: quota, LimitRange, admission, a pod template that makes no valid pod."""

from __future__ import annotations

import pytest

from tests.manifests import defaults, manifest
from tests.reconcile.job.plan.stable_jobs import error_of, running
from tests.reconcile.job.plan.world import World, condition

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")


def pass_time(world: World, seconds: int) -> None:
    """The operator acts as soon as it wants to, or every 30 s."""
    until = world.now.timestamp() + seconds
    while world.now.timestamp() < until:
        wait_s = world.reconcile().requeue_after_s
        world.tick(max(1.0, 30.0 if wait_s is None else min(wait_s, 30.0)))


def refused(**spec: object) -> World:
    """A stable job whose upgrade is refused."""
    world = running(**spec)
    world.refused_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    return world


def test_a_first_deployment_over_quota_says_so_and_waits_until_there_is_room() -> None:
    world = World(manifest(), refused_images=frozenset({"shop/counts:1"}))
    pass_time(world, 1800)
    assert world.status.lifecycle_state == "DEPLOYING"
    reason, message = error_of(world)
    assert reason == "PodRefused"
    assert "exceeded quota: team" in message
    for type_, status in (("Ready", "False"), ("Stalled", "True")):
        assert condition(world, type_) == (status, "PodRefused")
    assert world.events.count("PodRefused") == 1, "a refusal is told once, although the quota's words change"
    assert 20 < world.creations < 60
    assert world.process is None
    world.refused_images = frozenset()
    pass_time(world, 200)
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.error is None
    assert condition(world, "Stalled")[0] == "False"


def test_an_upgrade_whose_pod_is_refused_is_rolled_back_in_time_with_the_server_s_words() -> None:
    world = refused(upgradeTimeout="5m")
    pass_time(world, 280)
    assert "RollingBack" not in world.events
    assert world.status.lifecycle_state == "UPGRADING"
    pass_time(world, 120)
    assert world.status.lifecycle_state == "ROLLED_BACK"
    assert world.images[-1] == "shop/counts:1"
    reason, message = error_of(world)
    assert reason == "PodRefused"
    assert "exceeded quota: team" in message
    assert not any("Batches ran" in each for each in world.messages)


def test_the_last_stable_spec_applied_again_after_a_rollback_leaves_rolled_back() -> None:
    world = refused(upgradeTimeout="1m")
    pass_time(world, 120)
    assert world.status.lifecycle_state == "ROLLED_BACK"
    world.change(image="shop/counts:1")
    pass_time(world, 30)
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.error is None
    assert condition(world, "Ready")[0] == "True"
    assert condition(world, "Degraded")[0] == "False"
    assert world.pods_made == 2, "the job runs on"
    assert world.status.reconciliation is not None
    assert world.status.reconciliation.state == "DEPLOYED"


@pytest.mark.parametrize("correction", ["shop/counts:1", "shop/counts:3"])
def test_a_correction_during_the_refusal_is_started_at_once(correction: str) -> None:
    world = refused()
    pass_time(world, 120)
    world.change(image=correction)
    pass_time(world, 60)
    assert world.images[-1] == correction
    assert world.status.lifecycle_state == "STABLE"
    assert "RollingBack" not in world.events


def test_a_refused_upgrade_can_be_suspended() -> None:
    world = refused()
    pass_time(world, 120)
    world.change(state="suspended")
    pass_time(world, 70)
    assert world.status.lifecycle_state == "SUSPENDED"
    assert world.status.error is None


def test_a_stable_job_whose_new_pod_is_refused_waits_for_room_and_can_be_corrected_or_suspended() -> None:
    world = running()
    world.refused_images = frozenset({"shop/counts:1"})
    world.kill_driver()
    pass_time(world, 1500)
    assert world.status.lifecycle_state == "RECOVERING", "there is nothing to roll back to"
    assert error_of(world)[0] == "PodRefused"
    world.change(image="shop/counts:2")
    pass_time(world, 120)
    assert world.images[-1] == "shop/counts:2"
    assert world.status.lifecycle_state == "STABLE"


def test_a_new_operator_process_does_not_take_refusals_for_lost_pods() -> None:
    """It knows of the refusal from the status only."""
    world = refused()
    pass_time(world, 120)
    world.refusal = None
    world.reconcile()
    assert world.status.transition is not None
    assert (world.status.transition.kind, world.status.transition.step) == ("upgrade", "start")


def test_a_rollback_whose_pod_is_refused_too_goes_on_when_there_is_room() -> None:
    world = refused(upgradeTimeout="1m")
    world.refused_images = frozenset({"shop/counts:1", "shop/counts:2"})
    pass_time(world, 1200)
    assert world.status.lifecycle_state == "ROLLING_BACK"
    assert condition(world, "Stalled") == ("True", "PodRefused")
    world.refused_images = frozenset({"shop/counts:2"})
    pass_time(world, 120)
    assert world.status.lifecycle_state == "ROLLED_BACK"
