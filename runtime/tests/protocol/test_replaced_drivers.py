"""A driver that was replaced, however long it was paused and at whichever step, neither runs a batch nor takes anything from its successor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.checkpoint.lineage.fencing import claim_attempt
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import CorruptDataError, FencedError, InvalidInputError
from statefulspark.rpc.messages.batches import Planned
from statefulspark.state.store.rocksdb_store import RocksDBStore

from .conftest import Start
from .interleaved import InterleavedStore, Pause
from .test_lives import expected
from .world import Driver, World, state_of

_ROWS = [(f"key-{n % 5}", 10 * n) for n in range(48)]


def run(driver: Driver, rows: int) -> int:
    """Run the next batch; its number."""
    batch = driver.plan(rows)
    assert batch is not None
    driver.run(batch)
    return batch


def checkpoint(driver: Driver) -> CheckpointInfo:
    """Take a checkpoint."""
    info = driver.checkpoint()
    assert isinstance(info, CheckpointInfo)
    return info


def finish(driver: Driver) -> None:
    """Run what is left, let all timers fire and take a last checkpoint."""
    while (batch := driver.plan(9)) is not None:
        driver.run(batch)
    driver.coordinator.query.drain()
    while (batch := driver.plan(1)) is not None:
        driver.run(batch)
    checkpoint(driver)


def check_all_rows_count_once(world: World) -> None:
    """Output and state are those of a job that nothing disturbed."""
    given = Counter((key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows)
    assert given == expected(world.input)
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())


def _cancelled(start: Start, _: World) -> None:
    driver = start(1)
    run(driver, 8)
    checkpoint(driver)
    driver.coordinator.delete_state()


def _cancelled_and_begun_anew(start: Start, world: World) -> None:
    _cancelled(start, world)
    world.sink.clear()
    world.seen.clear()
    run(start(1), 8)


def _emptied_by_hand(start: Start, world: World) -> None:
    world.store.delete(info.key for info in world.store.list(""))
    world.sink.clear()
    world.seen.clear()
    run(start(1), 8)


def _a_hundred_attempts_later(start: Start, world: World) -> None:
    for _ in range(100):
        claim_attempt(world.store, now_ms=1)
    driver = start(1)
    run(driver, 8)
    run(driver, 8)
    checkpoint(driver)


@pytest.mark.parametrize("meanwhile", [_cancelled, _cancelled_and_begun_anew, _emptied_by_hand, _a_hundred_attempts_later])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_whatever_happened_while_it_was_paused_it_is_fenced(world: World, start: Start, meanwhile: Callable[[Start, World], None]) -> None:
    """Also when its number, or the one after it, is gone or somebody else's: it runs no batch and takes no checkpoint."""
    world.input = _ROWS
    paused = start(1)
    run(paused, 8)
    meanwhile(start, world)
    batch = paused.plan(8)
    assert batch is not None
    for known in (world.sink, world.seen):
        known.pop(batch, None)  # a sink that knows no batch numbers
    with pytest.raises(FencedError):
        paused.run(batch)
    assert isinstance(paused.checkpoint(), FencedError)


@pytest.mark.parametrize("point", ["driver.begun", "slot.begun", "slot.processed", "slot.changelog.durable"])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_driver_paused_in_a_batch_ends_it_with_an_error(world: World, start: Start, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """It is thawed when others have run the batch and later ones: its task fails, so a sink that commits with the task gets nothing.

    A pause after the batch's record comes before Spark gives any row to the sink; then no row reaches a slot.
    """
    world.input = _ROWS
    paused = start(1)
    run(paused, 8)
    batch = paused.plan(8)
    assert batch is not None
    newer: list[Driver] = []
    reached: list[str] = []

    def reach(name: str) -> None:
        reached.append(name)
        if name == point and not newer:
            newer.append(start(1))
            for _ in range(3):
                run(newer[0], 8)
            world.clock_s += 60
            reached.clear()

    monkeypatch.setattr("statefulspark.failpoints.reach", reach)
    if point == "driver.begun":
        paused.coordinator._batch_actions.planned(Planned())
    with pytest.raises(FencedError):
        paused.run_task(batch, next(paused.partitions(batch)), twice=False)
    assert newer
    assert "slot.acknowledged" not in reached
    if point == "driver.begun":
        assert reached == []
    assert isinstance(paused.coordinator.fatal, FencedError)
    finish(newer[0])
    check_all_rows_count_once(world)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_replaced_driver_that_is_cancelled_deletes_nothing(world: World, start: Start) -> None:
    """The state is its successor's, which goes on with it."""
    world.input = _ROWS
    old = start(1)
    run(old, 8)
    new = start(2)
    run(new, 8)
    checkpoint(new)
    before = world.store.list("")
    with pytest.raises(FencedError):
        old.coordinator.delete_state()
    assert world.store.list("") == before
    finish(start(1))
    check_all_rows_count_once(world)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_cancelled_job_begins_anew(world: World, start: Start) -> None:
    """Nothing of its state is left; the number of the last attempt stays, because older drivers know theirs."""
    world.input = _ROWS
    first = start(1)
    run(first, 8)
    checkpoint(first)
    first.coordinator.delete_state()
    assert [info.key for info in world.store.list("")] == ["_job", "attempts/00000002", "attempts/00000002-start"]
    world.sink.clear()
    world.seen.clear()
    second = start(1)
    assert second.coordinator.view().attempt == 3
    finish(second)
    check_all_rows_count_once(world)


def _world(folder: Path, **settings: Any) -> tuple[World, InterleavedStore]:
    folder.mkdir()
    world = World(folder=folder, input=_ROWS, **settings)
    store = world.store = InterleavedStore(world.store)
    return world, store


def test_a_driver_that_starts_during_a_cancellation_goes_on_or_begins_anew(tmp_path: Path) -> None:
    """The one that cancels is paused before each of its requests in turn. Its successor has the whole state or none, and keeps it."""
    for step in count():
        world, store = _world(tmp_path / str(step))
        old = Driver(world, 1)
        run(old, 8)
        checkpoint(old)
        run(old, 8)
        successors: list[Driver] = []

        def replace(world: World = world, successors: list[Driver] = successors) -> None:
            successors.append(Driver(world, 1))
            if successors[0].coordinator.view().committed < 0:
                world.sink.clear()
                world.seen.clear()
            run(successors[0], 8)

        pause = Pause(store, step, replace)
        try:
            old.coordinator.delete_state()
        except FencedError:
            assert successors
        pause.end()
        for driver in successors:
            driver.start_slot(0)
            run(driver, 8)
            checkpoint(driver)
            finish(driver)
            check_all_rows_count_once(world)
            driver.close()
        old.close()
        if not pause.over:
            break
    assert step > 10


@pytest.mark.parametrize("steps", [(0, 3, 5, 9), pytest.param(tuple(range(60)), marks=pytest.mark.exhaustive)], ids=["some", "every"])
def test_a_driver_that_starts_from_a_checkpoint_during_retention_keeps_what_it_needs(tmp_path: Path, steps: tuple[int, ...]) -> None:
    """Retention is paused before one of its requests, and another driver starts from a checkpoint which is about to be deleted.

    Either its own checkpoints are whole for good and it can be started again, or it is refused and the state from before is.
    """
    refusals = 0
    for step in steps:
        world, store = _world(tmp_path / str(step), backend="rocksdb", retained=9)
        world.input = _ROWS[:20]
        old = Driver(world, 1)
        taken = []
        for number in range(3):
            if number == 2:
                compact(old)  # so that the files of older checkpoints are in none that stays
            run(old, 4)
            taken.append(checkpoint(old))
        outcome: list[Driver | CorruptDataError | InvalidInputError] = []

        def replace(
            world: World = world,
            origin: str = taken[0].path,
            outcome: list[Driver | CorruptDataError | InvalidInputError] = outcome,
        ) -> None:
            try:
                outcome.append(Driver(world, 1, origin))
            except (CorruptDataError, InvalidInputError) as refused:
                outcome.append(refused)

        old.coordinator._durable._retention._retention._retained = 1
        pause = Pause(store, step, replace)
        old.coordinator._durable.clean(None, tuple)
        pause.end()
        if pause.over:
            _live_on(world, outcome[0])
            refusals += not isinstance(outcome[0], Driver)
        old.close()
    assert 0 < refusals < len(steps)


def _live_on(world: World, outcome: Driver | CorruptDataError | InvalidInputError) -> None:
    """The driver that started lives on; then, or if it was refused, the next one starts without naming anything."""
    if isinstance(outcome, Driver):
        outcome.start_slot(0)
        run(outcome, 4)
        checkpoint(outcome)
        outcome.close()
    assert verify(world.store.url).sound
    driver = Driver(world, 2)
    run(driver, 20)
    checkpoint(driver)
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
    driver.close()


def compact(driver: Driver) -> None:
    """Let each slot's store write its table files anew."""
    for service in driver.slots.values():
        assert isinstance(service.store, RocksDBStore)
        native = service.store.native()
        assert native is not None
        native.compact_range(None, None)
