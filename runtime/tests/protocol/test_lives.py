"""Random lives of a job: slots and drivers die between any two steps, checkpoints and rescales come between, and every row counts once."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import FencedError, UnavailableError

from .conftest import Start
from .world import INLINE_BYTES, LATER_MS, Died, Driver, Row, World, state_of

SLOT_POINTS = ("slot.restored", "slot.begun", "slot.processed", "slot.changelog.durable", "slot.acknowledged")
DRIVER_POINTS = (
    "driver.begin",
    "driver.begun",
    "driver.group",
    "driver.grouped",
    "driver.acknowledged",
    "driver.checkpoint.collected",
    "driver.checkpoint.published",
)
OUTAGES = ("lost", "unanswered")
_KEYS = 12
_ROWS = 60
_SEEDS = [
    *(("memory", seed) for seed in (0, 2, 5)),
    ("rocksdb", 1),
    *left_to_test_all((*(("memory", seed) for seed in (1, 3, 4, 6, 7)), ("rocksdb", 0))),
]


def rows_of(chance: Random) -> list[Row]:
    """Rows in event-time order, often with equal times."""
    at = 0
    rows = []
    for _ in range(_ROWS):
        at += chance.choice((0, 1, 10, 30))
        rows.append((f"key-{chance.randrange(_KEYS)}", at))
    return rows


def expected(rows: list[Row]) -> Counter[tuple[str, str, int]]:
    """Each row is numbered, and its timer fires once; timers of equal key and time are one."""
    numbers: Counter[str] = Counter()
    results: Counter[tuple[str, str, int]] = Counter()
    for key, _ in rows:
        numbers[key] += 1
        results[key, "row", numbers[key]] += 1
    results.update({(key, "timer", at + LATER_MS) for key, at in rows})
    return results


class Life:
    """One job from its first driver to the end of its source, with what chance brings."""

    def __init__(self, world: World, start: Start, chance: Random) -> None:
        self.world = world
        self.chance = chance
        self._start = start
        self.driver: Driver = self._started()

    def _started(self) -> Driver:
        """A driver, sooner or later: slots may die while they restore. Its clock may be behind that of the driver before."""
        self.world.clock_s -= self.chance.choice((0, 0, 20))
        self.world.inline_up_to(self.chance.choice(INLINE_BYTES))
        return self._start(self.chance.randint(1, 3))

    def likely(self, share: float) -> bool:
        return self.chance.random() < share

    def live(self) -> None:
        """Run all batches."""
        while (batch := self._plan()) is not None:
            if not self._run(batch):
                self.driver.close()
                self.driver = self._started()
                self._late_commit()
            else:
                self.driver.check_stores()
                self._between_batches()

    def _plan(self) -> int | None:
        """Plan a batch. When its record cannot be written, the query starts again with more rows at hand, or the driver is lost."""
        batch = self.driver.plan(self.chance.randint(1, 9))
        if batch is None or self.likely(0.7):
            return batch
        self.world.outages = [self.chance.choice(OUTAGES) for _ in range(self.chance.randint(1, 4))]
        while self.world.outages:
            try:
                self.driver.begin()
                break
            except UnavailableError:
                if self.likely(0.2):
                    self.driver.close()
                    self.driver = self._started()
                elif self.likely(0.7):
                    self.driver.coordinator.query.before_start()
            if self.driver.plan(self.chance.randint(1, 9)) is None:
                break
        self.world.outages = []
        return self.driver.plan(self.chance.randint(1, 9))

    def _run(self, batch: int) -> bool:
        """Run a batch; False when the driver did not live to its end."""
        self.world.doomed = self.chance.choice((None, *SLOT_POINTS[1:], *DRIVER_POINTS))
        request = self.driver.coordinator.snapshots.request(None) if self.likely(0.3) else None
        deliver = self.likely(0.85)
        commit = deliver and self.likely(0.85)
        deaths = len(self.world.deaths)
        self.world.changelog_outages = [self.chance.choice(OUTAGES)] if self.likely(0.1) else []
        try:
            self.driver.run(batch, deliver=deliver, commit=commit, twice=self.likely(0.15))
            if commit and request is not None:
                self.driver.outcome(request)
        except Died:
            return False
        finally:
            self.world.doomed, self.world.changelog_outages, self.world.failed_changelogs = None, [], 0
        return commit and not any(point.startswith("driver.checkpoint") for point in self.world.deaths[deaths:])

    def _late_commit(self) -> None:
        """The new driver's query fails halfway and starts again; what the driver before had not delivered may arrive after all."""
        batch = self.driver.planned()
        if batch not in self.world.seen or batch in self.world.sink or self.likely(0.3):
            return
        for partition in self.driver.partitions(batch):
            if self.likely(0.5):
                self.driver.run_task(batch, partition)
        self.driver.coordinator.query.before_start()
        if self.likely(0.7):
            self.world.sink[batch] = list(self.world.seen[batch])

    def _between_batches(self) -> None:
        chance = self.chance.random()
        if chance < 0.1:
            self._replace_driver()
        elif chance < 0.2:
            self.driver.rescale(self.chance.randint(1, 3))
        elif chance < 0.3:
            self.driver.start_slot(self.chance.randrange(self.driver.parallelism))
        elif chance < 0.4:
            assert isinstance(self.driver.checkpoint(), CheckpointInfo)
        elif chance < 0.5:
            self._run_available_now()

    def _run_available_now(self) -> None:
        """A query that ends when it has processed what was there at its start, and what is due then; the next run goes on after it."""
        coordinator = self.driver.coordinator
        coordinator.query.before_start(available_now=True)
        rows_max = self.chance.randint(0, _ROWS)
        while (batch := self.driver.plan(self.chance.randint(1, 9), rows_max)) is not None:
            self.driver.run(batch)
        assert coordinator.query.idle(), "timers that are due were left"
        assert isinstance(self.driver.checkpoint(), CheckpointInfo)
        self.driver.close()
        self.driver = self._started()

    def _replace_driver(self) -> None:
        """A new driver starts while the old one still lives: what the old one does from then on is refused."""
        old, self.driver = self.driver, self._started()
        batch = old.plan(5)
        if batch is not None and batch not in self.world.sink:
            with pytest.raises(FencedError):
                old.run(batch)
        old.close()

    def finish(self) -> None:
        """Let all timers fire and take a last checkpoint."""
        self.driver.coordinator.query.drain()
        while (batch := self.driver.plan(1)) is not None:
            self.driver.run(batch)
        assert isinstance(self.driver.checkpoint(), CheckpointInfo)


@pytest.mark.parametrize(("world", "seed"), _SEEDS, indirect=["world"])
def test_every_row_counts_once(world: World, start: Start, seed: int) -> None:
    """Whatever dies when: the output is what an undisturbed job gives out, and so is the state of the last checkpoint."""
    chance = Random(seed)
    world.input = rows_of(chance)
    life = Life(world, start, chance)
    life.live()
    life.finish()
    given = Counter((key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows)
    assert given == expected(world.input), world.deaths
    times = [(batch, now) for batch, rows in sorted(world.sink.items()) for *_, now in rows]
    assert [now for _, now in times] == sorted(now for _, now in times), "processing time went back"
    counted = state_of(world, "number")
    assert sorted(counted) == sorted(Counter(key for key, _ in world.input).items())
    assert state_of(world, "event-timers") == []
