"""Checkpointing mode ``at-least-once``: no row is lost from state or output, state stays exact, and output is repeated under new numbers only."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark.checkpoint.formats.paths import CHANGELOG_PREFIX
from statefulspark.checkpoint.gc.collecting import collect_garbage
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.slots.crashes import DEATHS_MAX
from statefulspark.coordinator.snapshots.pending import CheckpointTimes
from statefulspark.errors import FencedError, StatefulSparkError
from statefulspark.storage.open import open_store

from .conftest import Start
from .test_lives import Life, expected, rows_of
from .world import Died, Driver, World, poll_until, state_of

_ROWS = [(f"key-{n % 5}", 10 * n) for n in range(60)]
_SEEDS = [
    ("memory", 0),
    ("memory", 1),
    ("rocksdb", 0),
    *left_to_test_all(("memory", seed) for seed in range(2, 10)),
    *left_to_test_all(("rocksdb", seed) for seed in range(1, 3)),
]


def given(world: World) -> Counter[tuple[Any, ...]]:
    """What the sink has, without the parameters of batches."""
    return Counter((key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows)


def check(world: World, *, once: bool = False) -> None:
    """Compare sink and newest checkpoint with the oracle, which is a loop over the input."""
    oracle = expected(world.input)
    output = given(world)
    assert set(output) == set(oracle), "output that is missing or was never right"
    assert all(output[each] >= count for each, count in oracle.items()), "lost output"
    if once:
        assert output == oracle, "output was repeated although nothing failed"
    # What the job has left is whole: garbage collection refuses to begin if a restore would miss an object, and deletes nothing that one needs.
    collect_garbage(world.store.url, open_store=open_store, now_s=time.time() + 2 * 86_400, older_than_s=3600, dry_run=False)
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
    assert state_of(world, "event-timers") == []


def run(driver: Driver, rows: int, *, deliver: bool = True, commit: bool = True) -> int:
    """Run the next batch; its number."""
    batch = driver.plan(rows)
    assert batch is not None
    driver.run(batch, deliver=deliver, commit=commit)
    return batch


def finish(driver: Driver) -> None:
    """Process the rest of the input, let all timers fire and take a last checkpoint."""
    while (batch := driver.plan(7)) is not None:
        driver.run(batch)
    driver.coordinator.query.drain()
    while (batch := driver.plan(1)) is not None:
        driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)


def changelogs(world: World) -> set[int]:
    """Batches that left changelogs."""
    return {int(info.key.split("/")[2]) for info in world.store.list(CHANGELOG_PREFIX)}


class RepeatingLife(Life):
    """Drivers of either mode follow each other, and batches that a driver abandons are not the end of it."""

    def _started(self) -> Driver:
        self.world.at_least_once = self.likely(0.7)
        return super()._started()

    def _run(self, batch: int) -> bool:
        before = self.driver.returns
        used = max([batch, *self.world.sink])
        try:
            alive = super()._run(batch)
        except FencedError:
            assert self.driver.returns > before, "a batch was refused although the job did not go back"
            alive = True
        if alive:
            # The sink had the batch, and no changelogs say what it did: the watch of a running job makes the dry run.
            self.driver.complete()
        if self.driver.returns > before:
            assert self.driver.planned() > used, "a number was used again"
        return alive


@pytest.mark.parametrize(("world", "seed"), _SEEDS, indirect=["world"])
def test_no_row_is_lost(world: World, start: Start, seed: int) -> None:
    """Whatever dies when, in whichever mode: state is exact, and the output lacks nothing."""
    chance = Random(1000 + seed)
    world.input, world.retained = rows_of(chance), chance.randint(1, 3)
    life = RepeatingLife(world, start, chance)
    life.live()
    world.doomed = None
    life.finish()
    check(world)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_without_failures_each_row_is_processed_once(world: World, start: Start) -> None:
    """Checkpoints, a rescale and a start after the last checkpoint repeat nothing; only the first batch has changelogs."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(2)
    for rows in (5, 4, 6):
        run(driver, rows)
    assert changelogs(world) == {0}
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    driver.rescale(3)
    run(driver, 5)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    driver.close()
    finish(start(1))
    check(world, once=True)


@pytest.mark.parametrize("lost", ["slot", "driver"])
@pytest.mark.parametrize("checkpoint", [True, False], ids=["checkpoint", "none"])
@pytest.mark.parametrize(("deliver", "commit"), [(True, True), (True, False), (False, False)], ids=["whole", "delivered", "undelivered"])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_back_to_the_last_checkpoint(world: World, start: Start, lost: str, checkpoint: bool, deliver: bool, commit: bool) -> None:
    """Without a checkpoint the job goes back to its first batch. Numbers go on above all that were used; the sink misses nothing."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(2)
    run(driver, 7)
    run(driver, 6)
    if checkpoint:
        assert isinstance(driver.checkpoint(), CheckpointInfo)
    run(driver, 5)
    last = run(driver, 4, deliver=deliver, commit=commit)
    if lost == "slot":
        driver.start_slot(0)
        assert driver.returns == 1
    else:
        driver.close()
        driver = start(3)
    assert driver.planned() > last
    assert driver.offset() == (13 if checkpoint else 7), "it does not read from where the checkpoint ends"
    finish(driver)
    check(world)
    assert sum(given(world).values()) > sum(expected(world.input).values()), "nothing was processed again, so nothing was tested"


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_the_running_batch_runs_again_under_its_number_if_the_one_before_is_in_a_checkpoint(world: World, start: Start) -> None:
    """A slot, or the driver, is lost while nothing but the running batch is newer than the checkpoint: nothing is repeated."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(2)
    run(driver, 7)
    run(driver, 6)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    batch = driver.plan(5)
    assert batch is not None
    world.doomed = "slot.begun"
    driver.run(batch)
    assert (world.deaths, driver.returns) == (["slot.begun"], 0)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert run(driver, 5, deliver=False) == batch + 1
    driver.close()
    driver = start(2)
    assert driver.plan(9) == batch + 1
    finish(driver)
    check(world, once=True)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_slot_that_dies_after_its_acknowledgement(world: World, start: Start) -> None:
    """What it acknowledged is lost with it, although the batch before is in a checkpoint: the batch must not be committed without it."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(2)
    run(driver, 7)
    run(driver, 6)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    last = run(driver, 5, deliver=False)
    for index in range(2):
        driver.start_slot(index)
    assert driver.returns == 1
    assert driver.planned() > last
    finish(driver)
    check(world)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_lost_answer_to_an_acknowledgement(world: World, start: Start) -> None:
    """The slot dropped what the driver counts as done. It would have caught up with its changelog; without one the job goes back."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(1)
    run(driver, 7)
    run(driver, 6)
    batch = run(driver, 5)
    driver.slots[0].keyed_steps["count"].undo(batch)
    later = driver.plan(4)
    assert later is not None
    with pytest.raises(Exception, match="no changelogs"):
        driver.run(later)
    assert driver.coordinator.going_back.wanted
    driver.go_back()
    assert driver.planned() > later
    finish(driver)
    check(world)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_deaths_in_many_batches_neither_end_the_job_nor_keep_checkpoints_off(world: World, start: Start) -> None:
    """The job processes further rows after each death, and takes a checkpoint soon after it has gone back although the interval is long."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(1)
    driver.coordinator._checkpoints._times = CheckpointTimes(interval_s=3600.0, timeout_s=60.0)
    run(driver, 2)
    failures: list[StatefulSparkError] = []
    driver.coordinator.report_to(checkpoint_ended=lambda *_: None, slot_crashed=failures.append, returned=lambda *_: None)
    for number in range(DEATHS_MAX + 2):
        run(driver, 2)
        run(driver, 2)
        batch = driver.plan(1)
        assert batch is not None
        world.doomed = "slot.begun"
        with suppress(FencedError):
            driver.run(batch)
        assert driver.returns == number + 1
        run(driver, 2)
        poll_until(lambda: (taken := driver.coordinator.view().last_checkpoint) is not None and taken.batch > batch, driver)  # noqa: B023
    assert not failures
    finish(driver)
    check(world)


@pytest.mark.parametrize("point", ["driver.jumped", "slot.restored"])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_death_on_the_way_back(world: World, start: Start, point: str) -> None:
    """The next driver finds the jump and resumes after it, or makes its own."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(2)
    last = max(run(driver, rows) for rows in (7, 6, 5))
    world.doomed = point
    if point.startswith("driver."):
        with pytest.raises(Died):
            driver.start_slot(1)
        driver.close()
        driver = start(2)
    else:
        driver.start_slot(1)
    assert point in world.deaths
    assert driver.planned() > last
    finish(driver)
    check(world)


@pytest.mark.parametrize("again", [1, 2])
@pytest.mark.parametrize("mode", [True, False], ids=["at-least-once", "exactly-once"])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_the_next_driver_goes_back_in_either_mode(world: World, start: Start, mode: bool, again: int) -> None:
    """What the earlier one left decides. From then on, a job that runs exactly-once repeats nothing."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(2)
    for rows in (7, 6, 5):
        run(driver, rows)
    for _ in range(again):
        driver.close()
        world.at_least_once = mode
        driver = start(2)
    repeated = given(world)
    run(driver, 9)
    if not mode:
        repeated = given(world)
        driver.close()
        driver = start(3)
        driver.start_slot(0)
        assert driver.returns == 0
    finish(driver)
    check(world)
    if not mode:
        assert all(count <= 1 for each, count in (given(world) - repeated).items()), "rows were processed again"


@pytest.mark.parametrize("where", ["in the driver", "in the next driver"])
@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_a_damaged_checkpoint(world: World, start: Start, where: str) -> None:
    """The job goes back one more."""
    world.input, world.at_least_once, world.retained = _ROWS, True, 3
    driver = start(2)
    run(driver, 7)
    run(driver, 3)
    first = driver.checkpoint()
    run(driver, 6)
    second = driver.checkpoint()
    assert isinstance(first, CheckpointInfo)
    assert isinstance(second, CheckpointInfo)
    last = run(driver, 5)
    new = [info.key for info in world.store.list("shared/") if info.key.startswith(f"shared/{second.id:010d}-")]
    assert new
    for key in new:
        world.store.put(key, bytes(len(world.store.get(key))))
    if where == "in the driver":
        driver.start_slot(0)
    else:
        driver.close()
        driver = start(2)
    assert driver.planned() > last
    assert driver.offset() == 10
    finish(driver)
    check(world)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_batches_with_changelogs_after_the_checkpoint_are_not_abandoned(world: World, start: Start) -> None:
    """A job that ran exactly-once before goes back to the last of those batches, and not to the checkpoint before them."""
    world.input = _ROWS
    driver = start(2)
    run(driver, 7)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    run(driver, 6)
    run(driver, 5)
    driver.close()
    world.at_least_once = True
    driver = start(3)
    run(driver, 4)
    run(driver, 3)
    driver.start_slot(2)
    assert driver.returns == 1
    assert driver.offset() == 18
    finish(driver)
    check(world)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_command_gives_way(world: World, start: Start) -> None:
    """A rescale or stop that waits for the running batch would wait for a slot that cannot come back."""
    world.input, world.at_least_once = _ROWS, True
    driver = start(2)
    run(driver, 7)
    run(driver, 6)
    driver.coordinator.going_back.wanted.ask("test", 0)
    with pytest.raises(Exception, match="Repeat the command"):
        driver.coordinator.query.pause(60)
    assert not driver.coordinator.query.paused
    driver.go_back()
    driver.coordinator.query.pause(60)
    driver.coordinator.query.resume()
    finish(driver)
    check(world)
