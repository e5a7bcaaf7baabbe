"""A job that goes back in time uses no batch number again: a sink that skips what it knows misses nothing, and the state is exact."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import NotRestorableError

from .conftest import Start
from .test_lives import expected
from .world import Driver, World, state_of

_ROWS = [(f"key-{n % 5}", 10 * n) for n in range(36)]


def run(driver: Driver, rows: int, *, deliver: bool = True, commit: bool = True) -> int:
    """Run the next batch; its number."""
    batch = driver.plan(rows)
    assert batch is not None
    driver.run(batch, deliver=deliver, commit=commit)
    return batch


def given(world: World, *, after: int = -1, until: int = 1_000) -> Counter[tuple[Any, ...]]:
    """What the sink has of these batches."""
    return Counter((key, kind, number) for batch, rows in world.sink.items() if after < batch <= until for key, kind, number, *_ in rows)


@pytest.mark.parametrize("lost", ["no driver", "before a batch", "after a batch", "after a checkpoint"])
@pytest.mark.parametrize(("deliver", "commit"), [(True, True), (True, False), (False, False)], ids=["whole", "delivered", "undelivered"])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_the_sink_misses_nothing_and_the_state_is_exact(world: World, start: Start, lost: str, deliver: bool, commit: bool) -> None:
    """Whatever became of the last batch before, and wherever the next driver dies: what the sink had stays, the rest comes anew."""
    world.input, world.retained = _ROWS, 9
    driver = start(2)
    back = -1
    for rows in (7, 6):
        back = run(driver, rows)
    old = driver.checkpoint()
    assert isinstance(old, CheckpointInfo)
    for rows in (5, 4):
        run(driver, rows)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    last = run(driver, 3, deliver=deliver, commit=commit)
    driver.close()
    before = {batch: list(rows) for batch, rows in world.sink.items()}

    driver = start(3, old.path)
    if lost != "no driver":
        if lost != "before a batch":
            assert run(driver, 8) == last + 1
        if lost == "after a checkpoint":
            assert isinstance(driver.checkpoint(), CheckpointInfo)
        driver.close()
        driver = start(2)
    assert (driver.plan(6) or 0) > last
    while (batch := driver.plan(6)) is not None:
        driver.run(batch)
        driver.check_stores()
    driver.coordinator.query.drain()
    while (batch := driver.plan(1)) is not None:
        driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)

    assert {batch: world.sink[batch] for batch in before} == before
    assert given(world, until=back) + given(world, after=last) == expected(world.input)
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
    assert state_of(world, "event-timers") == []


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_twice_back(world: World, start: Start) -> None:
    """Each way back goes above the one before, also to a checkpoint of before the first; the newest checkpoint needs no jump."""
    world.input, world.retained = _ROWS, 9
    driver = start(1)
    checkpoints = []
    for rows in (6, 6, 6):
        run(driver, rows)
        info = driver.checkpoint()
        assert isinstance(info, CheckpointInfo)
        checkpoints.append(info)
    driver.close()
    driver = start(2, checkpoints[1].path)
    assert run(driver, 6) == 3
    driver.close()
    driver = start(1, checkpoints[0].path)
    assert run(driver, 3) == 4
    newest = driver.checkpoint()
    assert isinstance(newest, CheckpointInfo)
    driver.close()
    driver = start(1, newest.path)
    assert run(driver, 3) == 5
    found, wanted = given(world, until=0) + given(world, after=3), given(world, until=1)
    assert {row for row in found if row[1] == "row"} == {row for row in wanted if row[1] == "row"}


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_an_unknown_past_is_refused(world: World, start: Start) -> None:
    """When the newest checkpoint is damaged and alone, nobody knows which numbers were used, so a savepoint cannot be gone back to."""
    world.input = _ROWS
    driver = start(1)
    run(driver, 6)
    request = driver.coordinator.snapshots.request(f"file://{world.folder}/savepoints")
    savepoint = driver.outcome(request)
    assert isinstance(savepoint, CheckpointInfo)
    run(driver, 6)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    driver.close()
    (key,) = (info.key for info in world.store.list("") if info.key.endswith("/_metadata"))
    world.store.put(key, world.store.get(key)[:-40])
    with pytest.raises(NotRestorableError, match=r"newest checkpoint is damaged.*another name"):
        start(1, savepoint.path)
