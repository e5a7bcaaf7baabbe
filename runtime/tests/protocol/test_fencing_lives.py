"""Random lives of a job whose drivers are replaced while they are paused at any request, cancelled, or sent back, and thawed at any time.

Whatever an older driver does when it is thawed changes neither output nor state.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark.checkpoint.catalog import checkpoint_ids, file_sizes, list_checkpoints, load
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.checkpoint.lineage.fencing import claim_attempt
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import ConflictError, FencedError, InvalidInputError, StatefulSparkError
from statefulspark.storage.open import open_store

from .conftest import Start
from .interleaved import InterleavedStore, Pause
from .test_lives import rows_of
from .test_replaced_drivers import check_all_rows_count_once, finish
from .world import Driver, World, state_of

_UPLOADED = re.compile(r"shared/|chk-\d+/(slot|spark-location)-")
_SEEDS = {"memory": 2, "rocksdb": 1}
_MORE_SEEDS = {"memory": 60, "rocksdb": 30}
_PARAMETERS = [
    *((kind, seed) for kind, seeds in _SEEDS.items() for seed in range(seeds)),
    *left_to_test_all((kind, seed) for kind, seeds in _MORE_SEEDS.items() for seed in range(_SEEDS[kind], _SEEDS[kind] + seeds)),
]


class FencingLife:
    """One job, its present driver, and those that it has replaced."""

    def __init__(self, world: World, start: Start, chance: Random) -> None:
        self.world = world
        self.store = InterleavedStore(world.store)
        world.store = self.store
        self.chance = chance
        self._start = start
        self.rewound = False
        self.paused: list[Driver] = []
        self.driver = start(1)

    def live(self) -> None:
        """Run all batches; between them, whatever happens."""
        while (batch := self.driver.plan(self.chance.randint(1, 9))) is not None:
            chance = self.chance.random()
            if chance < 0.25:
                self._paused_during_a_batch(batch)
                continue
            self.driver.run(batch)
            self._between_batches()

    def _between_batches(self) -> None:
        actions = {
            self._checkpoint: 4,
            self._thaw: 5,
            self._replace: 2,
            self._replace_during_a_checkpoint: 3,
            self._go_back: 1,
            self._cancel: 1,
            self._many_attempts: 0.3,
        }
        self.chance.choices(list(actions), list(actions.values()))[0]()

    def _checkpoint(self) -> None:
        outcome = self.driver.checkpoint()
        if isinstance(outcome, ConflictError):
            outcome = self.driver.checkpoint()  # a driver that was thawed as it published took the number; no other driver has the next one
        assert isinstance(outcome, CheckpointInfo)

    def _replace(self) -> None:
        self.paused.append(self.driver)
        self.driver = self._start(self.chance.randint(1, 2))

    def _many_attempts(self) -> None:
        """More drivers than claims stay die at their start; the next checkpoint deletes the claims of the oldest."""
        for _ in range(100):
            claim_attempt(self.store, now_ms=1)
        self._replace()
        if (batch := self.driver.plan(3)) is not None:
            self.driver.run(batch)
        self._checkpoint()

    def _cancel(self) -> None:
        """The job is cancelled and its state removed; it begins anew with an empty place for the sink."""
        self.driver.coordinator.delete_state()
        self.world.sink.clear()
        self.world.seen.clear()
        self.rewound = False
        self._replace()

    def _go_back(self) -> None:
        """A new driver starts from a checkpoint that is there."""
        there: list[str] = []
        with suppress(InvalidInputError):
            there = [info.url for info in list_checkpoints(self.store.url, open_store) if info.status == "complete"]
        if there:
            self.paused.append(self.driver)
            self.driver = self._start(self.chance.randint(1, 2), self.chance.choice(there))
            self.rewound = True

    def _paused_during_a_batch(self, batch: int) -> None:
        """Others run batches while the driver is paused in the middle of one, which it then goes on with."""
        old = self.driver
        pause = Pause(self.store, self.chance.randrange(12), self._successor)
        # It is fenced, its slot is; or the batch is the last thing that it ends, with the output that its successors give.
        with suppress(StatefulSparkError):
            old.run(batch)
        self._over(pause, old)

    def _replace_during_a_checkpoint(self) -> None:
        """Others start, from an old checkpoint perhaps, while the driver is paused in a checkpoint or in retention after it."""
        old = self.driver
        pause = Pause(self.store, self.chance.randrange(30), self.chance.choice((self._successor, self._go_back)))
        old.checkpoint()
        self._over(pause, old)

    def _over(self, pause: Pause, old: Driver) -> None:
        pause.end()
        if pause.over and self.driver is not old and old not in self.paused:
            self.paused.append(old)

    def _successor(self) -> None:
        self._replace()
        self.world.clock_s += self.chance.choice((0, 60))
        for _ in range(self.chance.randrange(3)):
            if (batch := self.driver.plan(self.chance.randint(1, 9))) is not None:
                self.driver.run(batch)

    def _go_on(self, old: Driver) -> None:
        """It evaluates no batch: neither one that its sink has and its slots have not, nor a new one."""
        try:
            batch = old.plan(5)
        except FencedError:
            return
        if batch is not None and batch not in self.world.sink:
            with pytest.raises(FencedError):
                old.run(batch)

    def _ask_for_a_checkpoint(self, old: Driver) -> None:
        """It fails, or does not begin, because a batch is not complete that this driver cannot evaluate any more."""
        request = old.coordinator.snapshots.request(None)
        for _ in range(20):
            old.coordinator.poll()
            if request.done.wait(0.01):
                assert isinstance(request.result[0], StatefulSparkError)
                return
        old.coordinator.snapshots.withdraw(request)

    def _thaw(self) -> None:
        """An old driver goes on with whatever it was about to do."""
        if not self.paused:
            return
        old = self.chance.choice(self.paused)
        before = self._needed()
        action = self.chance.choice(("batch", "checkpoint", "retention", "cancel"))
        if action == "batch":
            self._go_on(old)
        elif action == "checkpoint":
            self._ask_for_a_checkpoint(old)
        elif action == "retention":
            old.coordinator._durable.clean(None, tuple)
        else:
            with pytest.raises(FencedError):
                old.coordinator.delete_state()
        assert before <= {info.key for info in self.store.list("")}

    def _needed(self) -> set[str]:
        """All objects but uploads that no checkpoint names: an old driver may still be deleting those of a checkpoint that it has canceled."""
        stored = {info.key for info in self.store.list("")}
        files: set[str] = set()
        for number in checkpoint_ids(self.store):
            key = paths.metadata_key(paths.checkpoint_folder(number))
            if key in stored:  # that of a checkpoint that was not published is missing
                files |= set(file_sizes(key, load(self.store, key)))
        return {key for key in stored if key in files or not _UPLOADED.match(key)}


@pytest.mark.parametrize(("world", "seed"), _PARAMETERS, indirect=["world"])
def test_drivers_that_were_replaced_change_nothing(world: World, start: Start, seed: int, tmp_path: Path) -> None:
    """The state counts every row once, and so does the output unless the job was sent back, which gives rows out once more."""
    chance = Random(seed)
    world.input = rows_of(chance)
    world.retained = chance.randint(1, 3)
    life = FencingLife(world, start, chance)
    life.live()
    finish(life.driver)
    assert verify(world.store.url).sound
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
    if not life.rewound:
        check_all_rows_count_once(world)
