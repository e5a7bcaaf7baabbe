"""Where a job's state comes from and is kept: forks of snapshots, the age of what is gone on from, and snapshots of stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from statefulspark.config.claim_mode import ClaimMode
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType
from statefulspark_operator.reconcile.job.observe.observation import ObservedSnapshot
from tests.manifests import manifest
from tests.reconcile.job.plan.world import START, World, condition

SOURCE = ObservedSnapshot(
    name="friday",
    trigger=SnapshotTrigger.MANUAL,
    type=SnapshotType.SAVEPOINT,
    state=SnapshotState.COMPLETED,
    created_at=START,
    path="s3://bucket/savepoints/friday",
    max_parallelism=128,
)


def running(**spec: Any) -> World:
    world = World(manifest(**spec))
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    return world


def test_a_fork_starts_from_the_snapshot_once_it_is_complete() -> None:
    """Nothing is made before; then the driver is told the path, which the status keeps, and the name is nothing it has to know."""
    world = World(manifest(initialSnapshot={"name": "friday"}))
    world.settle(rounds=10)
    assert world.pods_made == 0
    assert condition(world, "Stalled") == ("True", "SnapshotMissing")
    world.others["friday"] = replace(SOURCE, state=SnapshotState.IN_PROGRESS, path=None)
    world.settle(rounds=10)
    assert world.pods_made == 0
    assert condition(world, "Stalled")[0] == "False", "it goes on by itself"
    world.others["friday"] = SOURCE
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.initial_state == SOURCE.path
    assert world.status.error is None
    assert all(spec.initial_savepoint_path == SOURCE.path and spec.initial_snapshot is None for spec in world.applied)
    assert world.events.count("SnapshotMissing") == 1


def test_what_was_started_from_does_not_change_when_the_snapshot_goes() -> None:
    world = World(manifest(initialSnapshot={"name": "friday"}), others={"friday": SOURCE})
    world.settle()
    world.others.clear()
    world.change(image="shop/counts:2")
    world.settle()
    assert world.images[-1] == "shop/counts:2"
    assert world.applied[-1].initial_savepoint_path == SOURCE.path


@pytest.mark.parametrize(
    ("source", "spec"),
    [
        (replace(SOURCE, state=SnapshotState.FAILED, path=None), {}),
        (replace(SOURCE, state=SnapshotState.ABANDONED, path=None), {}),
        (replace(SOURCE, max_parallelism=64), {}),
    ],
)
def test_a_snapshot_that_does_not_fit_starts_nothing_and_says_why(source: ObservedSnapshot, spec: dict[str, Any]) -> None:
    world = World(manifest(initialSnapshot={"name": "friday"}, **spec), others={"friday": source})
    world.settle()
    assert world.pods_made == 0
    assert condition(world, "Stalled") == ("True", "SnapshotUnusable")
    world.others["monday"] = replace(SOURCE, name="monday")
    world.change(initialSnapshot={"name": "monday"})
    world.settle()
    assert world.status.lifecycle_state == "STABLE"


def test_a_stateless_upgrade_does_not_go_back_to_the_initial_state() -> None:
    world = running(initialSavepointPath="s3://bucket/savepoints/first", upgradeMode="stateless")
    assert world.applied[-1].initial_savepoint_path == "s3://bucket/savepoints/first"
    world.change(image="shop/counts:2")
    world.settle()
    assert world.applied[-1].initial_savepoint_path is None


def test_the_driver_claims_a_path_and_nothing_else() -> None:
    """After a stateless upgrade there is no path to claim, which the driver would refuse; a StateSnapshot owns its files."""
    world = running(initialSavepointPath="s3://bucket/savepoints/first", claimMode="CLAIM", upgradeMode="stateless")
    assert world.applied[-1].claim_mode is ClaimMode.CLAIM
    world.change(image="shop/counts:2")
    world.settle()
    assert (world.applied[-1].initial_savepoint_path, world.applied[-1].claim_mode) == (None, ClaimMode.NO_CLAIM)


def test_an_old_checkpoint_makes_the_upgrade_take_a_savepoint() -> None:
    """The age guard, as Flink's: what last-state would go on from is too old, so there is a savepoint although the mode asks for none."""
    world = running(upgradeMode="last-state", lastStateMaxCheckpointAge="1min")
    assert world.process is not None
    newest = world.process.last_checkpoint
    for _ in range(3):
        world.tick(60)
        world.process.last_checkpoint = newest
    world.change(image="shop/counts:2")
    world.reconcile()
    world.reconcile()
    assert world.savepoints == 1
    world.settle()
    assert world.images[-1] == "shop/counts:2"
    fresh = running(upgradeMode="last-state", lastStateMaxCheckpointAge="1min")
    fresh.change(image="shop/counts:2")
    fresh.settle()
    assert fresh.savepoints == 0


@pytest.mark.parametrize("mends", ["driver", "spec"])
def test_a_driver_that_does_not_answer_is_left_alone_while_its_state_in_storage_is_too_old(mends: str) -> None:
    world = running(upgradeMode="last-state", lastStateMaxCheckpointAge="1min")
    world.deaf = True
    world.settle(rounds=20, seconds=30)
    world.change(image="shop/counts:2")
    world.settle(rounds=60, seconds=5)
    assert world.images == ["shop/counts:1"]
    assert condition(world, "Stalled") == ("True", "LastStateTooOld")
    assert world.events.count("LastStateTooOld") == 1
    if mends == "spec":
        world.change(lastStateMaxCheckpointAge=None)
        world.settle(rounds=5)
    world.deaf = False
    world.settle(rounds=200)
    assert world.images == ["shop/counts:1", "shop/counts:2"]
    assert world.status.lifecycle_state == "STABLE"
    assert condition(world, "Stalled")[0] == "False"


@pytest.mark.parametrize(("mode", "type_"), [("savepoint", "savepoint"), ("last-state", "checkpoint")])
def test_what_a_job_was_stopped_with_is_a_snapshot(mode: str, type_: str) -> None:
    """One object for each stop, with the path that a fork needs, and no removal of files with it."""
    world = running(upgradeMode=mode)
    world.change(state="suspended")
    world.settle()
    (taken,) = world.taken
    assert taken.name.startswith("counts-suspend-2026")
    assert (taken.trigger, taken.type, taken.dispose) == ("upgrade", type_, False)
    assert taken.existing_path == world.status.lifecycle_history[0].message.split()[-1]  # type: ignore[union-attr]


def test_snapshots_of_stops_are_listed_by_count_and_those_of_checkpoints_as_long_as_their_files_are_there() -> None:
    world = running(upgradeMode="savepoint", savepoints={"history": {"count": 2, "age": "365d"}})
    for nonce in range(4):
        world.change(restartNonce=nonce)
        world.settle()
    assert len(world.taken) == 4
    assert sorted(world.snapshots) == sorted(each.name for each in world.taken[-2:])
    world.change(upgradeMode="last-state", restartNonce=9)
    for _ in range(60):
        world.reconcile()
        world.tick()
    checkpoints = [name for name, snapshot in world.snapshots.items() if snapshot.type == "checkpoint"]
    assert world.taken[-1].type == "checkpoint"
    assert not checkpoints, "the job has pruned its files by now"


def test_scheduled_savepoints_go_with_their_files() -> None:
    """Their history is what asks for the removal."""
    world = running(savepoints={"schedule": {"interval": "1min"}})
    world.settle(rounds=1, seconds=70)
    world.reconcile()
    (taken,) = world.taken
    assert taken.dispose


def checkpointing(**retention: Any) -> dict[str, Any]:
    return {"dir": "s3://bucket/checkpoints", "savepointDir": "s3://bucket/savepoints", "retention": retention}


def listed(world: World) -> list[str]:
    """Paths of the checkpoints that have an object, oldest first."""
    found = [each for each in world.snapshots.values() if each.trigger == "job"]
    return [str(each.path) for each in sorted(found, key=lambda each: each.checkpoint_id or 0)]


def test_kept_checkpoints_have_objects_as_many_as_are_to_be_listed_and_none_that_is_gone() -> None:
    """Checkpoints come each second; at each moment only such are listed as were kept at the last refresh, and never more than asked for."""
    world = running(checkpointing=checkpointing(count=60, listed=3))
    most = 0
    for _ in range(300):
        world.reconcile()
        paths = {info.path for info in world.kept}
        assert len([path for path in listed(world) if path in paths]) >= len(listed(world)) - 1
        most = max(most, len(listed(world)))
        world.tick()
    assert most == 2, "60 kept of one second, one listed each 30 s"
    assert all(each.type == "checkpoint" and each.known is not None and not each.dispose for each in world.taken)


def test_at_most_as_many_checkpoints_are_listed_as_asked_for_the_newest() -> None:
    world = running(checkpointing=checkpointing(count=1000, listed=2))
    for _ in range(200):
        world.reconcile()
        world.tick()
    assert len(world.taken) >= 5
    assert listed(world) == [each.existing_path for each in world.taken[-2:]]


def test_objects_of_checkpoints_cost_one_look_and_one_object_each_half_minute() -> None:
    """However fast checkpoints come: what 500 jobs do is 500 times this."""
    world = running(checkpointing=checkpointing(count=10))
    taken, asked = len(world.taken), world.listings
    for _ in range(300):
        world.reconcile()
        world.tick()
    assert len(world.taken) - taken <= 10
    assert world.listings - asked <= 11


def test_a_job_that_keeps_one_checkpoint_lists_none_unless_told_to() -> None:
    world = running()
    world.settle(rounds=100)
    assert not world.taken
    assert not world.listings
    world.change(checkpointing=checkpointing(listed=1))
    for _ in range(70):
        world.reconcile()
        world.tick()
    assert world.pods_made == 1, "what is listed is nothing that the job has to be started again for"
    assert len(listed(world)) == 1


def test_listing_ends_when_it_is_no_longer_asked_for() -> None:
    world = running(checkpointing=checkpointing(count=100))
    for _ in range(100):
        world.reconcile()
        world.tick()
    assert listed(world)
    world.change(checkpointing=checkpointing(count=100, listed=0))
    for _ in range(40):
        world.reconcile()
        world.tick()
    assert not listed(world)


def test_objects_of_a_suspended_job_follow_what_its_driver_kept() -> None:
    """Its last checkpoint pushed out older ones, and the driver says so when it ends: nobody asks storage."""
    world = running(checkpointing=checkpointing(count=40), upgradeMode="last-state")
    for _ in range(35):
        world.reconcile()
        world.tick()
    assert listed(world)
    world.kept = []
    world.change(state="suspended")
    world.settle()
    assert not listed(world)
    assert [each.path for each in world.snapshots.values()] == [world.kept[-1].path], "the one of the stop"


def test_objects_of_another_folder_are_left_alone() -> None:
    """A stateless upgrade begins a new folder and nothing prunes the old one."""
    world = running(checkpointing=checkpointing(count=2))
    old = replace(
        SOURCE, name="counts-checkpoint-1", trigger=SnapshotTrigger.JOB, type=SnapshotType.CHECKPOINT, path="s3://bucket/old/chk-1"
    )
    world.snapshots[old.name] = old
    for _ in range(70):
        world.reconcile()
        world.tick()
    assert old.name in world.snapshots


def test_an_object_that_could_not_be_made_known_goes() -> None:
    world = running(checkpointing=checkpointing(count=2))
    lost = replace(SOURCE, name="lost", trigger=SnapshotTrigger.JOB, type=SnapshotType.CHECKPOINT, state=SnapshotState.FAILED, path=None)
    world.snapshots["lost"] = lost
    for _ in range(35):
        world.reconcile()
        world.tick()
    assert "lost" not in world.snapshots
