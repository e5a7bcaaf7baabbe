"""Each time a job goes back to an earlier checkpoint, its history says so: from where to where, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.durable.returns import returns_at_start
from statefulspark.errors import CorruptDataError, StatefulSparkError

from .conftest import Start
from .test_replaced_drivers import checkpoint, finish, run
from .world import Driver, World

_ROWS = [(f"key-{n % 5}", 10 * n) for n in range(60)]
Said = list[tuple[str, StatefulSparkError | None]]


def _listening(driver: Driver) -> Said:
    said: Said = []
    driver.coordinator.report_to(
        checkpoint_ended=lambda *_: None, slot_crashed=lambda _: None, returned=lambda message, reason: said.append((message, reason))
    )
    return said


def _at_start(driver: Driver) -> Said:
    return list(returns_at_start(driver.coordinator._durable._lineage))


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_slot_is_lost_at_least_once(world: World, start: Start, batches: int) -> None:
    world.input, world.at_least_once = _ROWS, True
    driver = start(2)
    said = _listening(driver)
    run(driver, 7)
    base = checkpoint(driver).path
    for _ in range(batches):
        run(driver, 5)
    assert said == []
    driver.start_slot(1)
    which = "batch 1" if batches == 1 else "batches 1 to 2"
    message = (
        "slot 1: it starts again, and batches since the last checkpoint have no changelogs: the job went back to batch 0, from "
        f"{base}. The rows of {which} are processed again under new numbers"
    )
    assert said == [(message, None)]
    finish(driver)
    assert len(said) == 1


@pytest.mark.parametrize("with_checkpoint", [True, False])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_driver_is_lost_at_least_once(world: World, start: Start, with_checkpoint: bool) -> None:
    """Its successor says it, and the one after that does not say it again. Without a checkpoint, the first batch has changelogs."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(2)
    assert _at_start(driver) == []
    run(driver, 7)
    base = checkpoint(driver).path if with_checkpoint else "empty state"
    last = [run(driver, 5) for _ in range(2)][-1]
    driver.close()
    driver = start(2)
    ((message, reason),) = _at_start(driver)
    assert reason is None
    assert message == (
        f"batches without changelogs had run before attempt 2 of the driver: the job went back to batch 0, from {base}. "
        f"The rows of batches 1 to {last} are processed again under new numbers"
    )
    run(driver, 5)
    checkpoint(driver)
    driver.close()
    assert _at_start(start(2)) == []


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_job_that_is_started_from_an_earlier_checkpoint(world: World, start: Start, tmp_path: Path) -> None:
    world.input = _ROWS
    driver = start(2)
    run(driver, 7)
    savepoint = driver.checkpoint((tmp_path / "savepoints").as_uri())
    assert isinstance(savepoint, CheckpointInfo)
    run(driver, 5)
    run(driver, 5)
    driver.close()
    driver = start(2, savepoint.path)
    ((message, _),) = _at_start(driver)
    base = driver.coordinator._durable.base_url
    assert message == (
        f"attempt 2 of the driver was started from {savepoint.path}: the job went back to batch 0, from {base}. "
        "The rows of batches 1 to 2 are processed again under new numbers"
    )


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_a_damaged_checkpoint(world: World, start: Start) -> None:
    """The slots of the running job, and the next driver, pass it over; no row is processed again."""
    world.input, world.retained = _ROWS, 3
    driver = start(2)
    said = _listening(driver)
    run(driver, 7)
    first = checkpoint(driver).path
    run(driver, 7)
    second = checkpoint(driver).path
    run(driver, 7)
    slot = next(Path(second.removeprefix("file://")).glob("slot-0-*"))
    manifest = next(slot.glob("MANIFEST*"))
    manifest.write_bytes(manifest.read_bytes()[:-1])
    driver.start_slot(0)
    ((message, reason),) = said
    assert isinstance(reason, CorruptDataError)
    assert message.startswith(f"{second} cannot be restored: ")
    assert message.endswith(f"Slots restore {first} and the changelogs of the batches since")
    run(driver, 7)
    driver.close()
    driver = start(2)
    ((message, reason),) = _at_start(driver)
    assert isinstance(reason, CorruptDataError)
    assert message.startswith("skipped a checkpoint: chk-2/slot-0-")
    finish(driver)
