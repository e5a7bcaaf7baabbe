"""A world per test, in which nothing sleeps long and only what the test dooms dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from statefulspark.coordinator.batches.changelogs import BatchChangelogs

from .changing import ChangingDriver, ChangingWorld
from .world import Driver, World

Start = Callable[..., Driver]
StartChanging = Callable[..., ChangingDriver]


@pytest.fixture(params=["memory", "rocksdb"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(folder=tmp_path, backend=request.param)
    monkeypatch.setattr("statefulspark.failpoints.reach", world.reach)
    monkeypatch.setattr("statefulspark.coordinator.batches.records.write_record", world.write_record)
    monkeypatch.setattr(BatchChangelogs, "put", partialmethod(_put, world))
    clock = world.clock()
    for module in ("snapshots.schedule", "durable.fence"):
        monkeypatch.setattr(f"statefulspark.coordinator.{module}.time", clock)
    return world


@pytest.fixture
def start(world: World) -> Iterator[Start]:
    """Start a driver; all of them are closed when the test ends."""
    drivers: list[Driver] = []

    own = world

    def start(parallelism: int = 2, origin: str | None = None, *, world: World = own) -> Driver:
        drivers.append(Driver(world, parallelism, origin))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangingWorld:
    world = ChangingWorld(folder=tmp_path, retained=2, input=[(f"key-{n % 7}", 10 * n) for n in range(48)])
    monkeypatch.setattr("statefulspark.failpoints.reach", world.reach)
    return world


@pytest.fixture
def begin(changing: ChangingWorld) -> Iterator[StartChanging]:
    """Start a driver with the given steps; all of them are closed when the test ends."""
    drivers: list[ChangingDriver] = []

    def begin(*steps: str, parallelism: int = 2) -> ChangingDriver:
        if drivers:
            drivers[-1].close()
        drivers.append(ChangingDriver(changing, steps, parallelism))
        return drivers[-1]

    yield begin
    for driver in drivers:
        driver.close()


def _put(changelogs: BatchChangelogs, world: World, *args: Any, **options: Any) -> str:
    return world.put_changelogs(changelogs, *args, **options)
