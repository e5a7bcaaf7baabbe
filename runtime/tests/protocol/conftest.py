"""A world per test, in which nothing sleeps long and only what the test dooms dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from statefulspark.coordinator.batch_changelogs import BatchChangelogs

from .world import Driver, World

Start = Callable[..., Driver]


@pytest.fixture(params=["memory", "rocksdb"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(folder=tmp_path, backend=request.param)
    monkeypatch.setattr("statefulspark.failpoints.reach", world.reach)
    monkeypatch.setattr("statefulspark.coordinator.batch_records.write_record", world.write_record)
    monkeypatch.setattr(BatchChangelogs, "put", partialmethod(_put, world))
    clock = world.clock()
    for module in ("checkpoint_schedule", "fence"):
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


def _put(changelogs: BatchChangelogs, world: World, *args: Any, **options: Any) -> str:
    return world.put_changelogs(changelogs, *args, **options)
