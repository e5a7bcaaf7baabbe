"""Two reconciliations of one object, of two kinds or of two replicas: at whatever call one overtakes the other, nothing that was written is lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from statefulspark.errors import ConflictError
from statefulspark_operator.reconcile.job.job_reconciler import ResyncIntervals
from statefulspark_operator.reconcile.reconciler import Reconciler, WorkKey
from tests.manifests import manifest
from tests.reconcile.cluster import NAMESPACE, JobWorld
from tests.reconcile.interleavings import Step, every_order, interleave, pause

JOB: WorkKey = ("job", NAMESPACE, "counts")
STORAGE = "storage"
ORDER = ["TRIGGER_PENDING", "IN_PROGRESS", "COMPLETED"]


def new_world(**spec: Any) -> JobWorld:
    """A job that has not been looked at. Objects are as old as they are."""
    world = JobWorld(manifest(**spec))

    def clock() -> str:
        return world.now.isoformat()

    world.cluster.clock = clock
    return world


def running() -> JobWorld:
    """A job whose driver runs."""
    world = new_world()

    async def start() -> None:
        while world.pod_age < 4:
            await world.reconcile()
            world.tick()

    asyncio.run(start())
    return world


def replica(world: JobWorld) -> Reconciler:
    """Another replica of the operator, which has just started to lead while the first one does not know yet that it has stopped."""
    context = replace(world.context, cache=world.cluster.new_cache())
    return Reconciler(context, may_act=lambda: True, resync=ResyncIntervals(), now=lambda: world.now)


def snapshots(world: JobWorld) -> list[dict[str, Any]]:
    return [tree for (kind, _), tree in world.cluster.objects.items() if kind == "StateSnapshot"]


def storage_pods(world: JobWorld) -> list[dict[str, Any]]:
    """Those that are not being deleted."""
    pods = [tree for (kind, _), tree in world.cluster.objects.items() if kind == "Pod"]
    return [
        pod
        for pod in pods
        if pod["metadata"]["labels"]["statefulspark.io/component"] == STORAGE and "deletionTimestamp" not in pod["metadata"]
    ]


def listing() -> tuple[JobWorld, Step]:
    """A job that has created the object of a retained checkpoint and not written its status yet, and the rest of that reconciliation."""
    folders = {"dir": "s3://bucket/checkpoints", "savepointDir": "s3://bucket/savepoints"}
    world = new_world(checkpointing={**folders, "retention": {"count": 3, "listed": 2}})
    world.cluster.pause = pause
    while world.pod_age < 20:
        job = Step(lambda: world.reconciler.reconcile(JOB))
        while not job.ended:
            job.next()
            if snapshots(world):
                return world, job
        world.tick()
    raise AssertionError("no object is created")


def abandoned() -> JobWorld:
    """The same, and the operator has terminated there; another one continues."""
    world, job = listing()
    job.kill()
    world.cluster.pause = None
    world.restart_operator()
    return world


def of_snapshot(world: JobWorld) -> WorkKey:
    (snapshot,) = snapshots(world)
    return "snapshot", NAMESPACE, snapshot["metadata"]["name"]


async def settle(world: JobWorld) -> int:
    """The work queue goes on until nothing is left to do; storage pods report. Returns how many there were."""
    world.cluster.pause = None
    pods = 0
    for _ in range(6):
        again_s = await world.reconciler.reconcile(of_snapshot(world))
        if again_s is None:
            return pods
        world.now += timedelta(seconds=again_s)
        for pod in storage_pods(world):
            pods += 1
            end(world, pod)
    raise AssertionError("never settles")


def end(world: JobWorld, pod: dict[str, Any]) -> None:
    """A storage pod has found the checkpoint."""
    found = {
        "id": 1, "kind": "checkpoint", "path": "s3://bucket/chk-1", "batch": 9, "completed_ms": 1, "duration_ms": 5, "size_bytes": 100,
        "max_parallelism": 128,
    }  # fmt: skip
    message = json.dumps({"version": 1, "snapshot": found, "disposed": False, "error": None})
    terminated = {"exitCode": 0, "reason": "Completed", "message": message}
    status = {"phase": "Succeeded", "containerStatuses": [{"name": "driver", "state": {"terminated": terminated}}]}
    world.cluster.store({**pod, "status": status})


def completed(world: JobWorld) -> None:
    """The object says what the driver said."""
    (snapshot,) = snapshots(world)
    labels = {name.rpartition("/")[2]: value for name, value in snapshot["metadata"]["labels"].items()}
    assert (snapshot["status"].get("state"), snapshot["status"].get("path")) == ("COMPLETED", "s3://bucket/chk-1")
    assert (labels["snapshot-state"], labels["trigger-type"]) == ("COMPLETED", "job")


@pytest.mark.parametrize("late_s", [0, 60], ids=["at once", "a minute late"])
def test_the_object_of_a_retained_checkpoint_keeps_what_the_job_wrote(late_s: int) -> None:
    """The watch delivers the object before the job's reconciliation has written its status. Even if that takes a minute, nothing is lost or left."""

    def run(choose: Any) -> None:
        world, job = listing()
        world.now += timedelta(seconds=late_s)
        was_completed = False

        def check() -> None:
            nonlocal was_completed
            (snapshot,) = snapshots(world)
            is_completed = snapshot.get("status", {}).get("state") == "COMPLETED"
            assert is_completed or not was_completed, "what the job wrote has been overwritten"
            was_completed = is_completed
            assert late_s or not storage_pods(world), "its creator was about to say what it is"

        steps = [job, Step(lambda: world.reconciler.reconcile(of_snapshot(world)))]
        interleave(choose, steps, check)
        for step in steps:
            assert step.error is None or isinstance(step.error, ConflictError), step.error
        assert was_completed or late_s
        assert asyncio.run(settle(world)) == 0 or late_s
        completed(world)
        assert not storage_pods(world)

    assert every_order(run) > 10


def test_an_operator_that_terminates_before_the_status_leaves_an_object_that_is_described_later() -> None:
    world = abandoned()

    async def look() -> None:
        again_s = await world.reconciler.reconcile(of_snapshot(world))
        assert again_s is not None
        assert not storage_pods(world)
        world.now += timedelta(seconds=again_s)
        assert await settle(world) == 1

    asyncio.run(look())
    completed(world)
    assert not storage_pods(world)


def test_an_operator_that_terminates_at_any_call_leaves_no_storage_pod() -> None:
    """The status comes first, so the next reconciliation finds a snapshot that is complete and a pod that nobody needs."""

    def run(choose: Any) -> None:
        world = abandoned()
        world.now += timedelta(minutes=1)
        asyncio.run(world.reconciler.reconcile(of_snapshot(world)))
        (pod,) = storage_pods(world)
        end(world, pod)
        world.cluster.pause = pause
        reading = Step(lambda: world.reconciler.reconcile(of_snapshot(world)))
        while not reading.ended and choose(2) == 0:
            reading.next()
        reading.kill()
        world.restart_operator()
        asyncio.run(settle(world))
        completed(world)
        assert not storage_pods(world)

    assert every_order(run) > 5


def test_clocks_that_differ_delay_no_object() -> None:
    """An API server whose clock is an hour ahead has created the object in the future."""
    world = abandoned()
    world.now -= timedelta(hours=1)
    asyncio.run(world.reconciler.reconcile(of_snapshot(world)))
    assert storage_pods(world)


def test_a_replica_that_has_lost_the_lease_overwrites_no_status_of_a_job() -> None:
    """Its last request may be on its way for long. What the new leader wrote, of a later generation, stays."""

    def run(choose: Any) -> None:
        world = running()
        other = replica(world)
        world.now += timedelta(minutes=1)
        world.cluster.pause = pause
        generations: list[int] = []

        def after() -> None:
            assert world.job is not None
            generations.append(world.job["status"]["observedGeneration"])

        late = Step(lambda: world.reconciler.reconcile(JOB))
        while not late.ended and choose(2) == 0:
            late.next()
        world.change(manifest(restartNonce=5))
        new = Step(lambda: other.reconcile(JOB))
        new.run()
        assert new.error is None
        after()
        while not late.ended:
            late.next()
            after()
        assert late.error is None or isinstance(late.error, ConflictError)
        assert generations == sorted(generations), "the status of the later spec has been overwritten"

    assert every_order(run) > 3


def test_a_replica_that_has_lost_the_lease_turns_no_snapshot_back() -> None:
    """A savepoint of a user, taken by the old leader up to some call and by the new one to its end."""

    def run(choose: Any) -> None:
        world = running()
        world.cluster.store(
            {
                "apiVersion": "statefulspark.io/v1alpha1",
                "kind": "StateSnapshot",
                "metadata": {"name": "friday", "namespace": NAMESPACE},
                "spec": {"jobReference": {"name": "counts"}, "checkpoint": {}},
            }
        )
        other = replica(world)
        states = [0]

        def after() -> None:
            (snapshot,) = snapshots(world)
            states.append(ORDER.index(snapshot.get("status", {}).get("state", "TRIGGER_PENDING")))

        world.cluster.pause = pause
        late = Step(lambda: world.reconciler.reconcile(of_snapshot(world)))
        while not late.ended and choose(2) == 0:
            late.next()
        for _ in range(3):
            new = Step(lambda: other.reconcile(of_snapshot(world)))
            new.run()
            assert new.error is None
            after()
        while not late.ended:
            late.next()
            after()
        assert late.error is None or isinstance(late.error, ConflictError)
        assert states[-1] == ORDER.index("COMPLETED")
        assert states == sorted(states)
        (snapshot,) = snapshots(world)
        assert snapshot["status"]["path"] == "s3://bucket/chk-2"
        assert snapshot["metadata"]["labels"]["statefulspark.io/snapshot-state"] == "COMPLETED"

    assert every_order(run) > 5


def test_an_event_is_recorded_although_somebody_edits_the_object_at_that_moment() -> None:
    """The status is written, and the labels meet a conflict: the next plan finds nothing changed and has no event."""
    world = abandoned()
    world.now += timedelta(minutes=1)
    asyncio.run(world.reconciler.reconcile(of_snapshot(world)))
    (pod,) = storage_pods(world)
    end(world, pod)
    (snapshot,) = snapshots(world)
    snapshot["metadata"]["labels"].pop("statefulspark.io/snapshot-state")

    def edited(moment: str) -> None:
        if moment == "patch":
            world.cluster.trouble = lambda _: None
            raise ConflictError("the object has been modified")

    world.cluster.trouble = edited
    with pytest.raises(ConflictError):
        asyncio.run(world.reconciler.reconcile(of_snapshot(world)))
    asyncio.run(settle(world))
    completed(world)
    reasons = [tree["reason"] for (kind, _), tree in world.cluster.objects.items() if kind == "Event"]
    assert reasons.count("SnapshotCompleted") == 1
