"""A batch whose record could not be written has begun: whatever is tried again, its rows and parameters stay the same."""

from __future__ import annotations

from typing import Any

import pytest

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.lineage.lineage import read_record
from statefulspark.errors import UnavailableError

from .conftest import Start
from .test_lives import OUTAGES, expected
from .world import Driver, World


def _run_next(driver: Driver, rows: int) -> None:
    batch = driver.plan(rows)
    assert batch is not None
    driver.run(batch)


def _begin_at_last(driver: Driver, failures: int) -> None:
    """The query fails and starts again until the record is written; more rows are at hand each time."""
    for _ in range(failures):
        with pytest.raises(UnavailableError):
            driver.begin()
        driver.coordinator.query.before_start()
        assert driver.plan(100) == 1
    driver.begin()


@pytest.mark.parametrize("world", ["memory"], indirect=True)
@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("failures", [1, 3])
def test_a_driver_is_lost_after_an_outage(world: World, start: Start, outage: str, failures: int) -> None:
    """The next driver goes on after exactly the rows that the batch had: each counts once."""
    world.input = [(f"k{number % 3}", 10 * number) for number in range(20)]
    first = start(2)
    _run_next(first, 2)
    world.outages = [outage] * failures
    assert first.plan(2) == 1
    _begin_at_last(first, failures)
    first.run(1, commit=False)
    first.close()
    second = start(2)
    second.coordinator.query.drain()
    while (batch := second.plan(4)) is not None:
        second.run(batch)
    given = [(key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows]
    assert sorted(given) == sorted(expected(world.input).elements())


@pytest.mark.parametrize("world", ["memory"], indirect=True)
@pytest.mark.parametrize("outage", OUTAGES)
def test_the_batch_uses_the_processing_time_of_its_record(world: World, start: Start, outage: str) -> None:
    """The clock has moved on between the two attempts to write it."""
    world.input = [("a", 10), ("b", 20)]
    driver = start(2)
    _run_next(driver, 1)
    world.outages = [outage]
    assert driver.plan(1) == 1
    _begin_at_last(driver, 1)
    running = driver.coordinator._batches.current
    assert running is not None
    assert running.processing_time_ms == read_record(world.store, paths.batch_key(1, 1)).processing_time_ms


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_checkpoint_that_cannot_start_leaves_the_batch_its_record(world: World, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is stored before the checkpoint starts, so the batch has begun, and its rows and parameters stay."""
    world.input = [(f"k{number % 3}", 10 * number) for number in range(20)]
    driver = start(2)
    _run_next(driver, 2)
    outages = [UnavailableError("503")]
    capture = driver.coordinator._durable.capture_state

    def failing_once(*args: Any) -> None:
        if outages:
            raise outages.pop()
        capture(*args)

    monkeypatch.setattr(driver.coordinator._durable, "capture_state", failing_once)
    assert driver.plan(2) == 1
    driver.coordinator.snapshots.request(None)
    driver.begin()
    assert not outages
    running, record = driver.coordinator._batches.current, read_record(world.store, paths.batch_key(1, 1))
    assert running is not None
    assert (running.processing_time_ms, dict(running.watermarks)) == (record.processing_time_ms, dict(record.watermarks))
    driver.run(1)
    driver.coordinator.query.drain()
    while (batch := driver.plan(4)) is not None:
        driver.run(batch)
    given = [(key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows]
    assert sorted(given) == sorted(expected(world.input).elements())
