"""A job whose checkpoints have a maximum age: those that nothing needs go while it is idle, and it resumes from the newest one."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest

from statefulspark.checkpoint.catalog import checkpoint_ids
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.durable import retention as job_retention
from statefulspark.coordinator.slots.state import RESTORING
from statefulspark.coordinator.snapshots import schedule as checkpoint_schedule

from .conftest import Start
from .test_lives import rows_of
from .world import World, poll_until, state_of


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_an_idle_job(world: World, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while a slot restores, which may read them."""
    world.retained, world.max_age_s = 5, 100_000.0
    later_s = 0.0
    clock = SimpleNamespace(time=lambda: world.clock_s + later_s, monotonic=lambda: world.clock_s + later_s)
    monkeypatch.setattr(job_retention, "time", clock)
    monkeypatch.setattr(checkpoint_schedule, "_CLEAN_PAUSE_S", 0.0)
    world.input = rows_of(Random(7))
    driver = start(2)
    for _ in range(3):
        batch = driver.plan(9)
        assert batch is not None
        driver.run(batch)
        assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert checkpoint_ids(world.store) == [1, 2, 3]
    later_s = 200_000.0
    table = driver.coordinator.slots.table()
    real = table.all
    monkeypatch.setattr(table, "all", lambda: [SimpleNamespace(index=0, epoch=1, state=RESTORING)])
    driver.coordinator.poll()
    cleaning = driver.coordinator._checkpoints
    cleaning._clean()
    assert checkpoint_ids(world.store) == [1, 2, 3]
    monkeypatch.setattr(table, "all", real)
    poll_until(lambda: checkpoint_ids(world.store) == [3], driver)
    driver.close()
    driver = start(1)
    while (batch := driver.plan(9)) is not None:
        driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
