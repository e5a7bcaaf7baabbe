"""Sinks that read a part of a batch, or nothing: Spark commits the batch, and the state has every row of it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import InvalidInputError

from .conftest import Start
from .test_lives import DRIVER_POINTS, SLOT_POINTS, expected, rows_of
from .world import Died, World, state_of


@pytest.mark.parametrize("seed", [0, 1, 2, *left_to_test_all(range(3, 12))])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_state_has_every_row_whatever_is_read(world: World, start: Start, seed: int) -> None:
    """Whoever dies meanwhile, before or after the batch is made complete; what the sink was given, it was given once."""
    chance = Random(seed)
    world.input = rows_of(chance)
    driver = start(chance.randint(1, 3))
    draining = False
    while True:
        world.doomed = chance.choice((None, None, *SLOT_POINTS[1:], *DRIVER_POINTS))
        try:
            batch = driver.plan(chance.randint(1, 9))
            if batch is None and draining:
                break
            if batch is None:
                draining = True
                driver.coordinator.query.drain()
                continue
            commit = chance.random() < 0.8
            driver.run(batch, commit=commit, reads=chance.choice((None, *range(driver.parallelism + 1))), twice=chance.random() < 0.2)
            if commit:
                continue
        except Died:
            pass
        driver.close()
        world.doomed = None
        driver = start(chance.randint(1, 3))
        driver.coordinator.query.drain(on=draining)
    world.doomed = None
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    driver.check_stores()
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
    assert state_of(world, "event-timers") == []
    given = Counter((key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows)
    assert not given - expected(world.input), "a row was given out twice"


@pytest.mark.parametrize("reads", range(4))
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_the_first_batch_is_completed_with_its_own_rows(world: World, start: Start, reads: int) -> None:
    """Nothing may have begun it; rows that have come since are those of the next batch."""
    world.input = [(f"key-{n}", 10 * n) for n in range(12)]
    driver = start(3)
    assert driver.plan(6) == 0
    driver.run(0, reads=reads)
    driver.complete()
    assert driver.coordinator.view().committed == 0
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert sorted(state_of(world, "number")) == sorted((key, 1) for key, _ in world.input[:6])


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_query_that_leaves_rows_out_fails_the_job(world: World, start: Start) -> None:
    """If even a run without the sink does not compute all partitions, the job says so instead of losing rows."""
    world.input = [(f"key-{n}", 10 * n) for n in range(12)]
    driver = start(3)
    assert driver.plan(6) == 0
    driver.run(0, reads=1)
    driver.leaves_out = True
    assert driver.plan(6) is not None
    assert isinstance(driver.coordinator.fatal, InvalidInputError)
    assert "does not read all rows of uid 'count' in batch 0" in str(driver.coordinator.fatal)
    assert driver.coordinator.view().committed == -1
    driver.close()
    again = start(3)
    again.coordinator.query.drain()
    while (batch := again.plan(6)) is not None:
        again.run(batch)
    assert isinstance(again.checkpoint(), CheckpointInfo)
    assert sorted(state_of(world, "number")) == sorted((key, 1) for key, _ in world.input)
