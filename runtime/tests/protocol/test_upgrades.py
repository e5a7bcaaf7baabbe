"""Attempts that run different code: what a batch did to the state is what one of them did, never a mixture."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark import KeyedProcessFunction
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.coordinator.controls import CheckpointInfo

from .conftest import Start
from .test_lives import DRIVER_POINTS, SLOT_POINTS
from .world import INLINE_BYTES, UID, Count, Died, Driver, World

_RELEASES = 3


class Release(Count):
    """Sets a timer that tells which release processed the row."""

    def __init__(self, number: int) -> None:
        self.release = number

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1_000_000 + 10 * value.at + self.release)
        yield self._result(ctx, "row", self.release)


class Upgrades:
    """A job of which each driver may run another release."""

    def __init__(self, world: World, start: Start, chance: Random) -> None:
        self.world, self.chance = world, chance
        self._start = start
        self.batch_of: dict[int, int] = {}
        """Batch by event time, which no two rows share."""

    def driver(self) -> Driver:
        """Start a driver with some release."""
        self.world.function = Release(self.chance.randrange(_RELEASES))
        self.world.seen.clear()
        self.world.inline_up_to(self.chance.choice(INLINE_BYTES))
        return self._start(self.chance.randint(1, 3))

    def run(self) -> Driver:
        """Run all batches."""
        driver = self.driver()
        while (batch := driver.plan(self.chance.randint(3, 9))) is not None:
            for _, at in driver.rows_of(batch):
                self.batch_of[at] = batch
            if not self._one(driver, batch):
                driver.close()
                driver = self.driver()
        return driver

    def _one(self, driver: Driver, batch: int) -> bool:
        self.world.doomed = self.chance.choice((None, *SLOT_POINTS[1:], *DRIVER_POINTS[:5], "driver.acknowledged", "driver.acknowledged"))
        deliver = self.chance.random() < 0.8
        commit = deliver and self.chance.random() < 0.6
        try:
            driver.run(batch, deliver=deliver, commit=commit)
        except Died:
            return False
        finally:
            self.world.doomed = None
        return commit


@pytest.mark.parametrize("seed", [1, 3, *left_to_test_all((0, 2, *range(4, 8)))])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_batch_is_of_one_release(world: World, start: Start, seed: int) -> None:
    """However attempts die in between: each row counts once, and all rows of a batch were processed by the same release."""
    chance = Random(seed)
    world.input = [(f"key-{chance.randrange(12)}", 10 * n) for n in range(40)]
    upgrades = Upgrades(world, start, chance)
    driver = upgrades.run()
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    timers = timers_of(world)
    assert sorted((at - 1_000_000) // 10 for at in timers) == [at for _, at in world.input]
    releases: dict[int, set[int]] = {}
    for timestamp in timers:
        releases.setdefault(upgrades.batch_of[(timestamp - 1_000_000) // 10], set()).add(timestamp % 10)
    assert all(len(found) == 1 for found in releases.values()), releases


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_one_acknowledgement_of_the_old_code_is_not_adopted(world: World, start: Start) -> None:
    """It crashed after that; the upgraded code ran the batch and crashed after the sink's commit: the upgraded code's changes count."""
    world.input = [(f"key-{n}", 10 * n) for n in range(8)]

    def released(number: int) -> Driver:
        world.function = Release(number)
        world.seen.clear()
        driver = start(2)
        assert driver.plan(8) == 0
        return driver

    old = released(0)
    world.doomed = "driver.acknowledged"
    with pytest.raises(Died):
        old.run(0)
    old.close()
    upgraded = released(1)
    upgraded.run(0, commit=False)
    upgraded.close()
    driver = released(2)
    driver.run(0)
    while (batch := driver.plan(8)) is not None:
        driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert sorted(timestamp % 10 for timestamp in timers_of(world)) == [1] * 8


def timers_of(world: World) -> list[int]:
    """Time of each event-time timer in the newest checkpoint."""
    return [entry.timestamp_ms for entry in read_state(world.store.url, UID, "event-timers") if entry.timestamp_ms is not None]
