"""Refusals of the API server when a job starts: whole reconciliations against a cluster in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark_operator.api.drivers import Driver
from tests.manifests import manifest
from tests.reconcile.cluster import JobWorld

QUOTA = 'pods "counts-driver" is forbidden: exceeded quota: team'


@pytest.mark.parametrize("refused", ["Pod", "Service", "Secret"])
def test_the_server_s_message_becomes_the_job_s_error_and_the_job_starts_when_there_is_room(refused: str) -> None:
    """A refused pod, or a refused child that the pod needs, is part of the observation, not an error of the reconciliation."""

    async def go() -> None:
        world = JobWorld(manifest())
        create, full = world.cluster.create, True

        async def refuse(document: dict[str, object], *, dry_run: bool = False) -> dict[str, object] | None:
            if full and document["kind"] == refused:
                raise InvalidInputError(QUOTA)
            return await create(document, dry_run=dry_run)

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


def test_executors_that_the_server_refuses_have_its_message_on_the_job() -> None:
    """Spark's driver only logs the refusal: the operator asks by a dry run, twice a minute, while executors are missing."""

    async def go() -> None:
        world = JobWorld(manifest())
        create, full, asked = world.cluster.create, True, 0

        async def refuse(document: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any] | None:
            nonlocal asked
            if full and document["metadata"].get("name") == "counts-exec-check":
                assert dry_run
                asked += 1
                container = document["spec"]["containers"][0]
                assert container["resources"]["requests"].keys() == {"cpu", "memory"}
                raise InvalidInputError(QUOTA.replace("counts-driver", "counts-exec-check"))
            return await create(document, dry_run=dry_run)

        world.cluster.create = refuse  # type: ignore[method-assign]  # the API server of this test
        fetch = world.drivers.fetch

        async def without_slots(*arguments: Any, **options: Any) -> Driver:
            driver = await fetch(*arguments, **options)
            return replace(driver, slots=tuple(replace(each, state="STARTING") for each in driver.slots)) if full else driver

        world.drivers.fetch = without_slots  # type: ignore[method-assign]  # the driver of this test
        world.cluster.clock = lambda: f"{world.now:%Y-%m-%dT%H:%M:%SZ}"
        for _ in range(30):
            await world.reconcile()
            world.tick()
        assert world.job is not None
        status = world.job["status"]
        assert status["lifecycleState"] == "DEPLOYING"
        degraded = next(each for each in status["conditions"] if each["type"] == "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "SlotsMissing")
        assert "exceeded quota: team" in degraded["message"]
        assert 2 <= asked <= 6
        full = False
        for _ in range(20):
            await world.reconcile()
            world.tick()
        assert world.job["status"]["lifecycleState"] in {"RUNNING", "STABLE"}
        assert not [name for (kind, name) in world.cluster.objects if name == "counts-exec-check"]

    asyncio.run(go())
