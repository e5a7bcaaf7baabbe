"""Refusals of the API server when a job starts: whole reconciliations against a cluster in memory."""

from __future__ import annotations

import asyncio

import pytest

from statefulspark.errors import InvalidInputError
from tests.manifests import manifest
from tests.reconcile.cluster import JobWorld

QUOTA = 'pods "counts-driver" is forbidden: exceeded quota: team'


@pytest.mark.parametrize("refused", ["Pod", "Service", "Secret"])
def test_the_server_s_message_becomes_the_job_s_error_and_the_job_starts_when_there_is_room(refused: str) -> None:
    """A refused pod, or a refused child that the pod needs, is part of the observation, not an error of the reconciliation."""

    async def go() -> None:
        world = JobWorld(manifest())
        create, full = world.cluster.create, True

        async def refuse(document: dict[str, object]) -> dict[str, object] | None:
            if full and document["kind"] == refused:
                raise InvalidInputError(QUOTA)
            return await create(document)

        world.cluster.create = refuse  # type: ignore[method-assign]  # the API server of this test
        for _ in range(10):
            await world.reconcile()
            world.tick()
        assert world.job is not None
        status = world.job["status"]
        assert status["error"]["reason"] == "PodRefused"
        assert QUOTA in status["error"]["message"]
        told = [each["reason"] for (kind, _), each in world.cluster.objects.items() if kind == "Event"]
        assert told.count("PodRefused") == 1
        assert "ApplyFailed" not in told
        full = False
        for _ in range(30):
            await world.reconcile()
            world.tick()
        status = world.job["status"]
        assert status["lifecycleState"] in {"RUNNING", "STABLE"}
        assert "error" not in status

    asyncio.run(go())
