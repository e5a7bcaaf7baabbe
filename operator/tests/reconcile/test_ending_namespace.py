"""A namespace that is being deleted goes away with its jobs: nothing is created in it, and no finalizer keeps it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statefulspark.errors import ConflictError
from tests.manifests import manifest
from tests.reconcile.cluster import JobWorld

DELETED_AT = "2026-11-21T12:00:00Z"


async def running_job(**spec: Any) -> JobWorld:
    """A world with a job that runs."""
    world = JobWorld(manifest(**spec))
    for _ in range(20):
        await world.reconcile()
        world.tick()
    assert world.job is not None
    assert world.job["status"]["lifecycleState"] == "STABLE"
    return world


def mark(world: JobWorld, kind: str, name: str) -> None:
    """Delete an object as the namespace controller does: those with a finalizer or a grace stay for now."""
    stored = world.cluster.objects[kind, name]
    if kind in {"Pod", "StatefulSparkJob"}:
        world.cluster.store({**stored, "metadata": {**stored["metadata"], "deletionTimestamp": DELETED_AT}})
    else:
        world.cluster.remove(kind, name)


@settings(deadline=None, max_examples=30)
@given(order=st.randoms(use_true_random=False), savepoint=st.booleans(), suspended=st.booleans())
def test_a_job_goes_with_its_namespace(order: Any, savepoint: bool, suspended: bool) -> None:
    """In whatever order its objects go: nothing is created, no recovery is announced, and the finalizer is taken off at the first look."""

    async def run() -> None:
        options = {"savepointOnDeletion": True} if savepoint else {}
        world = await running_job(**options)
        if suspended:
            world.change(manifest(**options, state="suspended"))
            for _ in range(20):
                await world.reconcile()
                world.tick()
        assert world.job is not None
        state, refused = world.job["status"]["lifecycleState"], world.cluster.refused
        world.cluster.ending = True
        kinds = [key for key in world.cluster.objects if key[0] not in {"Event", "StateSnapshot"}]
        order.shuffle(kinds)
        for number, (kind, name) in enumerate(kinds):
            mark(world, kind, name)
            if order.random() < 0.5 or number == len(kinds) - 1:
                await world.reconcile()
            if world.job is not None:
                assert world.job["status"]["lifecycleState"] == state
        assert ("StatefulSparkJob", "counts") not in world.cluster.objects, "the finalizer is off"
        assert world.cluster.refused == refused, "nothing was tried to be created"

    asyncio.run(run())


def test_what_was_on_its_way_when_the_namespace_went_is_no_failure_of_the_job() -> None:
    """The API server refuses a pod in a namespace that has just begun to go: the job is looked at again, and says nothing."""

    async def run() -> None:
        world = await running_job()
        ending = iter([False, False])

        async def ends(_: str) -> bool:
            return next(ending, True)

        world.cluster.ending = True
        object.__setattr__(world.context, "namespace_terminating", ends)
        world.cluster.remove("Service", "counts-driver")
        with pytest.raises(ConflictError):
            await world.reconcile()
        assert not [tree for (kind, _), tree in world.cluster.objects.items() if kind == "Event" and tree["reason"] == "ApplyFailed"]
        mark(world, "StatefulSparkJob", "counts")
        await world.reconcile()
        await world.reconcile()
        assert world.job is None

    asyncio.run(run())
