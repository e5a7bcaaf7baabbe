"""Deploying, recovering and refusing: a job in the steady state, lost drivers, invalid specs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statefulspark_operator.reconcile.job.plan.planner import plan
from tests.manifests import defaults, manifest
from tests.reconcile.job.plan.stable_jobs import error_of, running
from tests.reconcile.job.plan.world import World, condition

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")


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
    observed = world.observe()
    first, second = plan(observed), plan(observed)
    assert first == second
    assert first.actions == ()
    assert first.events == ()


def test_a_steady_job_costs_no_status_write_for_half_a_minute() -> None:
    """Batches and checkpoints go on each second; only their figures may be written, and those seldom. They do arrive in the end."""
    world = running()
    world.settle(rounds=1)
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
    world.settle(rounds=5)
    world.change(savepointNonce=1)
    world.reconcile()
    assert world.status.observed_generation == world.generation
    assert world.process is not None
    assert world.status.batch == world.process.age


def test_a_job_whose_executors_do_not_come_does_not_run() -> None:
    """The driver says RUNNING as soon as its query is started."""
    world = World(manifest())
    world.missing_slots = 1
    world.settle(rounds=30)
    assert world.status.lifecycle_state == "DEPLOYING"
    world.missing_slots = 0
    world.settle()
    assert world.status.lifecycle_state == "STABLE"


def test_a_job_that_runs_after_it_was_given_up_is_taken_for_running() -> None:
    """A busy node may take longer than the timeout; the driver is not ended for that, so what it does then counts."""
    world = World(manifest(upgradeTimeout="10s"))
    world.missing_slots = 1
    world.settle(rounds=60)
    assert world.status.lifecycle_state == "FAILED"
    world.missing_slots = 0
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.error is None
    assert len(world.images) == 1


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


def test_a_lost_driver_is_started_again() -> None:
    world = running()
    world.kill_driver()
    world.settle()
    assert world.pods_made == 2
    assert world.images == ["shop/counts:1"] * 2
    assert world.status.lifecycle_state == "STABLE"
    assert "DriverLost" in world.events


@pytest.mark.parametrize(
    ("oom_killed", "sentence"),
    [(False, "The driver pod terminated."), (True, "The driver pod terminated and was OOM-killed. Increase spec.driver.memory.")],
)
def test_the_event_of_a_terminated_driver_names_the_last_checkpoint(oom_killed: bool, sentence: str) -> None:
    world = running()
    assert world.pod is not None
    last = world.status.last_checkpoint
    assert last is not None
    world.pod, world.process = replace(world.pod, phase="Failed", oom_killed=oom_killed), None
    world.settle()
    told = [message for reason, message in zip(world.events, world.messages, strict=True) if reason == "DriverLost"]
    assert told == [f"{sentence} The last known checkpoint is {last.path}"]
    assert world.status.lifecycle_state == "STABLE"


def test_a_driver_stopped_past_the_operator_is_started_again() -> None:
    world = running()
    world.end("SUSPENDED", None)
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
    assert condition(world, "Valid")[0] == "True", "the number that the state has may be written down"
    assert world.pods_made == 1


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


def test_an_invalid_first_spec_is_told_by_state_error_and_event() -> None:
    """Without a webhook the operator is the first to tell. Corrected, the job is deployed, and nothing speaks of an upgrade."""
    world = World(manifest(parallelism=0))
    world.settle()
    assert world.status.lifecycle_state == "FAILED"
    assert error_of(world)[0] == "InvalidSpec"
    assert "spec.parallelism" in error_of(world)[1]
    assert world.events.count("InvalidSpec") == 1
    world.change(parallelism=-1)
    world.settle()
    assert world.events.count("InvalidSpec") == 2, "another problem is told too"
    world.change(parallelism=2)
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert error_of(world) == ("", "")
    assert not any("upgraded" in message for message in world.messages)


def test_an_invalid_change_of_what_runs_is_the_error_until_it_is_corrected() -> None:
    world = running()
    world.change(maxParallelism=256)
    world.settle()
    assert error_of(world)[0] == "ImmutableField"
    assert world.events.count("ImmutableField") == 1
    assert world.status.lifecycle_state == "STABLE"
    world.change(maxParallelism=128)
    world.settle()
    assert error_of(world) == ("", "")


def test_state_in_a_folder_of_single_pods_is_warned_of() -> None:
    world = World(manifest(checkpointing={"dir": "file:///tmp/x"}))
    world.settle()
    assert world.events.count("LocalStorage") == 1


def test_checkpoints_that_the_driver_holds_are_warned_of() -> None:
    world = World(manifest(stateBackend={"type": "memory"}))
    world.settle()
    assert world.events.count("MemoryStateBackend") == 1
    assert any("every checkpoint is held by the driver. Use it for tests" in message for message in world.messages)
