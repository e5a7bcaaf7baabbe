"""Plans over time: whatever the spec asks for comes to be, with one driver at a time, also when operators die between any two writes."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statefulspark_operator.api.snapshots import SnapshotState
from statefulspark_operator.reconcile.plan import plan
from tests.reconcile.world import OperatorDiedError, World, condition, manifest


def settled(world: World) -> World:
    world.settle()
    return world


def running(**spec: Any) -> World:
    world = settled(World(manifest(**spec)))
    assert world.status.lifecycle_state == "STABLE"
    return world


def test_a_new_job_is_deployed_and_becomes_stable() -> None:
    world = running()
    assert world.images == ["shop/counts:1"]
    assert condition(world, "Ready") == ("True", "Running")
    assert condition(world, "Stalled")[0] == "False"
    assert [change.state.value for change in reversed(world.status.lifecycle_history)] == ["CREATED", "DEPLOYING", "RUNNING", "STABLE"]
    assert world.status.transition is None
    assert world.status.reconciliation is not None
    assert world.status.reconciliation.last_stable_spec == world.status.reconciliation.last_reconciled_spec


def test_the_status_says_what_the_memory_of_the_pods_is_for() -> None:
    world = running(executor={"memory": "4Gi", "slots": 2})
    plan_ = world.status.memory_plan
    assert plan_ is not None
    assert plan_.executor is not None
    assert plan_.executor.limit_bytes == 4 << 30
    assert sum(part.size_bytes for part in plan_.executor.parts) == 4 << 30
    assert plan_.managed_bytes_per_slot is not None
    assert any(part.size_bytes == 2 * plan_.managed_bytes_per_slot for part in plan_.executor.parts)


def test_a_settled_job_is_left_alone() -> None:
    """The same observation gives the same plan, and a settled job's plan does nothing."""
    world = running()
    seen = world.observe()
    first, second = plan(seen), plan(seen)
    assert first == second
    assert first.actions == ()
    assert first.events == ()


def test_a_steady_job_costs_no_status_write_for_half_a_minute() -> None:
    """Batches and checkpoints go on each second; only their figures may be written, and those seldom. They do arrive in the end."""
    world = running()
    world.settle(looks=1)
    batches = []
    for _ in range(3):
        before = world.status_writes
        for _ in range(30):
            world.reconcile()
            world.tick()
        assert world.status_writes - before <= 1
        batches.append(world.status.batch or 0)
    assert batches[0] < batches[1] < batches[2]
    assert world.status.last_checkpoint is not None
    assert world.process is not None
    assert world.process.age - batches[2] <= 31


def test_a_change_is_written_at_once_with_the_newest_figures() -> None:
    world = running()
    world.settle(looks=5)
    world.change(savepointNonce=1)
    world.reconcile()
    assert world.status.observed_generation == world.generation
    assert world.process is not None
    assert world.status.batch == world.process.age


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
    world.settle(looks=20)
    assert world.images == ["shop/counts:1"]
    assert world.process is not None, "the old version runs on"
    assert condition(world, "Stalled") == ("True", "StopFailed")
    world.settle(looks=300)
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert world.events.count("StopFailed") == 1, "a failure is told once, not at each attempt"
    assert condition(world, "Stalled")[0] == "False"


def test_an_upgrade_of_a_driver_that_does_not_answer_goes_on_from_the_last_state() -> None:
    world = running(upgradeMode="savepoint")
    world.deaf = True
    world.change(image="shop/counts:2")
    world.settle(looks=45)
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
    world.settle(looks=5)
    world.driver_state = "RUNNING"
    world.settle()
    assert "LastStateFallback" in world.events
    assert world.images == ["shop/counts:1", "shop/counts:2"]


def test_a_job_whose_executors_do_not_come_does_not_run() -> None:
    """The driver says RUNNING as soon as its query is started."""
    world = World(manifest())
    world.missing_slots = 1
    world.settle(looks=30)
    assert world.status.lifecycle_state == "DEPLOYING"
    world.missing_slots = 0
    world.settle()
    assert world.status.lifecycle_state == "STABLE"


def test_a_job_that_runs_after_it_was_given_up_is_taken_for_running() -> None:
    """A busy node may take longer than the timeout; the driver is not ended for that, so what it does then counts."""
    world = World(manifest(upgradeTimeout="10s"))
    world.missing_slots = 1
    world.settle(looks=60)
    assert world.status.lifecycle_state == "FAILED"
    world.missing_slots = 0
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.error is None
    assert len(world.images) == 1


def test_a_slow_stop_does_not_count_against_the_start() -> None:
    world = running(upgradeMode="savepoint", upgradeTimeout="1m")
    world.failing_stops = 3
    world.change(image="shop/counts:2")
    world.settle(looks=300)
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert "RollingBack" not in world.events


def test_a_failed_upgrade_rolls_back_to_the_last_stable_spec() -> None:
    world = running()
    world.broken_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    world.settle(looks=120)
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


def test_a_first_version_that_fails_has_nothing_to_roll_back_to() -> None:
    world = World(manifest(image="bad"), broken_images=frozenset({"bad"}))
    world.settle()
    assert world.images == ["bad"]
    assert world.status.lifecycle_state == "FAILED"
    assert condition(world, "Stalled") == ("True", "UserFunction")
    world.change(restartNonce=1, image="good")
    world.settle()
    assert world.images == ["bad", "good"]
    assert world.status.lifecycle_state == "STABLE"


def test_without_rollback_a_failed_upgrade_waits_for_a_person() -> None:
    world = running(rollback=False)
    world.broken_images = frozenset({"shop/counts:2"})
    world.change(image="shop/counts:2")
    world.settle()
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert world.status.lifecycle_state == "FAILED"


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
    world.settle(looks=20)
    assert world.pods_made == 1
    assert condition(world, "Stalled") == ("True", "RescaleFailed")
    assert world.process is not None
    assert world.process.parallelism == 2
    world.settle(looks=300)
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


def test_a_lost_driver_is_started_again() -> None:
    world = running()
    world.kill_driver()
    world.settle()
    assert world.pods_made == 2
    assert world.images == ["shop/counts:1"] * 2
    assert world.status.lifecycle_state == "STABLE"
    assert "DriverLost" in world.events


def test_a_driver_stopped_past_the_operator_is_started_again() -> None:
    world = running()
    world._end("SUSPENDED", None)
    world.settle()
    assert world.pods_made == 2
    assert world.status.lifecycle_state == "STABLE"


def test_a_job_that_keeps_losing_its_driver_is_started_less_and_less_often() -> None:
    world = running()
    world.kill_driver()
    for _ in range(400):
        world.reconcile()
        world.tick()
        if world.pod is not None and world.process is not None and world.process.age == 1:
            world.kill_driver()
    assert 10 <= world.pods_made <= 60


def test_an_immutable_field_is_refused_and_the_job_runs_on() -> None:
    world = running()
    world.change(maxParallelism=256)
    world.settle()
    assert condition(world, "Valid") == ("False", "ImmutableField")
    assert world.pods_made == 1
    assert world.process is not None
    world.change(maxParallelism=128)
    world.settle()
    assert condition(world, "Valid")[0] == "True"


def test_a_bad_spec_does_not_stop_what_runs_nor_its_recovery() -> None:
    world = running()
    world.change(parallelism="many")
    world.settle()
    assert condition(world, "Valid") == ("False", "InvalidSpec")
    assert world.process is not None
    world.kill_driver()
    world.settle()
    assert world.pods_made == 2
    assert world.images == ["shop/counts:1"] * 2


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
    world.settle(looks=400, seconds=5.0)
    assert world.gone
    assert world.pod is None


def test_a_pod_on_a_lost_node_is_given_up_after_its_grace_and_the_job_goes_on() -> None:
    world = running()
    world.stuck = True
    world.change(image="shop/counts:2")
    world.settle(looks=30, seconds=5.0)
    assert "ForceDeleted" not in world.events, "its grace is not over"
    world.settle(looks=100, seconds=5.0)
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
        world.settle(looks=1, seconds=20.0)
        for name, snapshot in list(world.snapshots.items()):
            world.snapshots[name] = replace(snapshot, state=SnapshotState.COMPLETED)
    assert len(world.snapshots) == 2
    ages = sorted(world.now - snapshot.created_at for snapshot in world.snapshots.values())
    assert ages[0] <= timedelta(seconds=80)
    assert ages[1] - ages[0] >= timedelta(seconds=55)


CHANGES = (
    {"image": "shop/counts:2"},
    {"parallelism": 4},
    {"state": "suspended"},
    {"state": "running"},
    {"image": "bad"},
    {"restartNonce": 1},
    {"upgradeMode": "savepoint"},
    {"parallelism": 0},
)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(range(len(CHANGES))),
            st.integers(0, 12),
            st.one_of(st.none(), st.integers(0, 6)),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_whatever_is_asked_for_and_whoever_dies_the_job_ends_as_the_spec_says(
    steps: list[tuple[int, int, int | None, bool]],
) -> None:
    """Random edits, operators that die after any number of writes, drivers that are lost. In the end: the spec as asked, one driver."""
    world = World(manifest(), broken_images=frozenset({"bad"}))
    for change, looks, die_after, lose in steps:
        world.change(**CHANGES[change])
        world.die_after = die_after
        for _ in range(looks):
            with contextlib.suppress(OperatorDiedError):
                world.reconcile()
            world.tick()
        if lose:
            world.kill_driver()
    world.die_after = None
    world.change(image="shop/counts:9", parallelism=3, state="running", upgradeMode="last-state")
    world.settle(looks=700)
    assert not world.two_drivers
    assert world.process is not None
    assert (world.process.image, world.process.parallelism) == ("shop/counts:9", 3)
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.transition is None
    world.change(state="suspended")
    world.settle(looks=100)
    assert world.pod is None
    world.deleting = True
    world.settle(looks=20)
    assert world.gone
