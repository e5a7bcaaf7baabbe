"""Objects of checkpoints through whole looks: complete as soon as they are made, and nothing that costs anything afterwards."""

from __future__ import annotations

import asyncio

from tests.manifests import manifest
from tests.reconcile.cluster import NAMESPACE, JobWorld


def test_the_object_of_a_kept_checkpoint_is_complete_and_left_alone() -> None:
    async def run() -> None:
        spec = manifest(checkpointing={"dir": "s3://bucket/checkpoints", "retention": {"count": 2}})
        world = JobWorld(spec)
        for _ in range(40):
            await world.reconcile()
            world.tick()
        (found,) = [each for (kind, _), each in world.cluster.objects.items() if kind == "StateSnapshot"]
        assert found["spec"] == {"jobReference": {"name": "counts"}, "checkpoint": {"path": "s3://bucket/chk-1"}}
        assert (found["status"]["state"], found["status"]["path"], found["status"]["maxParallelism"]) == (
            "COMPLETED",
            "s3://bucket/chk-1",
            128,
        )
        assert {name.removeprefix("statefulspark.io/"): value for name, value in found["metadata"]["labels"].items()} == {
            "job": "counts",
            "snapshot-type": "checkpoint",
            "snapshot-state": "COMPLETED",
            "trigger-type": "job",
        }
        assert not found["metadata"].get("finalizers"), "nothing is to be done when it goes"
        asked: list[str] = []
        world.cluster.trouble = asked.append
        await world.reconciler.reconcile(("snapshot", NAMESPACE, found["metadata"]["name"]))
        assert not asked

    asyncio.run(run())


def test_a_person_takes_a_checkpoint_by_an_object_and_deletes_the_object_at_once() -> None:
    async def run() -> None:
        world = JobWorld(manifest())
        for _ in range(10):
            await world.reconcile()
            world.tick()
        snapshot = {"jobReference": {"name": "counts"}, "checkpoint": {}}
        world.cluster.store(
            {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StateSnapshot", "metadata": {"name": "mine"}, "spec": snapshot}
        )
        for _ in range(3):
            await world.reconcile()
            world.tick()
        found = world.cluster.objects["StateSnapshot", "mine"]
        assert (found["status"]["state"], found["status"]["path"]) == ("COMPLETED", "s3://bucket/chk-2")
        assert found["metadata"]["labels"]["statefulspark.io/trigger-type"] == "manual"
        assert not found["metadata"].get("finalizers")

    asyncio.run(run())
