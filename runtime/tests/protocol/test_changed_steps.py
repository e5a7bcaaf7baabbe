"""Pipelines that change while a batch is not known to be committed: the batch is that of one attempt, with the steps that it had.

Whoever dies at which step, and whichever pipeline comes next: the state has exactly the rows of which the sink has results.
"""

from __future__ import annotations

from random import Random

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark.checkpoint.catalog import checkpoint_ids, load
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import encode_document
from statefulspark.checkpoint.lineage.lineage import read_record
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import CorruptDataError
from statefulspark.slot.process import STOPPED, run_slot

from .changing import ChangingDriver, ChangingWorld, check_all, finish
from .conftest import StartChanging
from .world import INLINE_BYTES, Died

_UIDS = ("a", "b", "c")
_DRIVER_POINTS = (
    "driver.begin",
    "driver.begun",
    "driver.group",
    "driver.grouped",
    "driver.acknowledged",
    "driver.checkpoint.collected",
    "driver.checkpoint.published",
)
_SLOT_POINTS = ("slot.begun", "slot.processed", "slot.changelog.durable", "slot.acknowledged")


def damage(world: ChangingWorld) -> bool:
    """Flip a bit in the state of the newest checkpoint, which may lie in its ``_metadata``, if there is another one. False if there is none."""
    found = [paths.checkpoint_folder(number) for number in checkpoint_ids(world.store)]
    complete = [folder for folder in found if world.store.head(paths.metadata_key(folder)) is not None]
    sound = [folder for folder in complete if world.store.head(paths.damaged_key(folder)) is None]
    if len(sound) < 2:
        return False
    key = paths.metadata_key(sound[-1])
    try:
        files = [paths.resolve_reference(key, file.path) for slot in load(world.store, key).slots for file in slot.files]
    except CorruptDataError:
        return False  # damaged already, and nobody has read it since
    damaged = next(iter(files), key)
    content = bytearray(world.store.get(damaged))
    content[len(content) // 2] ^= 1
    world.store.put(damaged, bytes(content))
    return True


class ChangingLife:
    """One job whose steps change by chance, whenever it starts a driver."""

    def __init__(self, world: ChangingWorld, begin: StartChanging, chance: Random) -> None:
        self.world = world
        self.chance = chance
        self._begin = begin
        self.partial = False
        """Whether a sink has read only a part of a batch, so that not all results are there."""
        world.inline_up_to(chance.choice(INLINE_BYTES))
        self.driver = begin(*self._steps())

    def _steps(self) -> list[str]:
        return self.chance.sample(_UIDS, self.chance.randint(1, len(_UIDS)))

    def _restart(self) -> None:
        steps = self.driver.steps if self.chance.random() < 0.3 else self._steps()
        self.world.inline_up_to(self.chance.choice(INLINE_BYTES))
        self.driver = self._begin(*steps, parallelism=self.chance.randint(1, 3))

    def live(self) -> None:
        """Run all batches."""
        while (batch := self.driver.plan(self.chance.randint(1, 5))) is not None:
            if not self._run(batch):
                self._restart()
            else:
                self._between_batches()

    def _run(self, batch: int) -> bool:
        """Run a batch; False if the driver has died."""
        chance, world = self.chance, self.world
        if chance.random() < 0.1:
            self.partial = True
            reads, row = chance.randint(0, self.driver.parallelism * len(self.driver.steps)), chance.random() < 0.5
            self.driver.run(batch, reads=reads + (not row), row=row)
            self.driver.complete()
            return True
        world.doomed = chance.choice((None, None, *_SLOT_POINTS, *_DRIVER_POINTS, "driver.acknowledged"))
        world.spared = chance.randint(0, 8)
        request = self.driver.coordinator.snapshots.request(None) if chance.random() < 0.3 else None
        deliver = chance.random() < 0.8
        commit = deliver and chance.random() < 0.5
        deaths = len(world.deaths)
        try:
            self.driver.run(batch, deliver=deliver, commit=commit)
            if commit and request is not None:
                self.driver.outcome(request)
        except Died:
            return False
        finally:
            world.doomed, world.spared = None, 0
        return commit and not any(point.startswith("driver.") for point in world.deaths[deaths:])

    def _between_batches(self) -> None:
        chance = self.chance.random()
        if chance < 0.2:
            self._restart()
        elif chance < 0.4:
            assert isinstance(self.driver.checkpoint(), CheckpointInfo)
            if self.chance.random() < 0.5:
                self._restart()
        elif chance < 0.5:
            if damage(self.world):
                self._restart()
        elif chance < 0.6:
            self.driver.start_slot(self.chance.randrange(self.driver.parallelism))
        elif chance < 0.7:
            self.driver.rescale(self.chance.randint(1, 3))

    def end(self) -> None:
        """Let the last driver have all steps, so that the state of those that were dropped is there to be compared."""
        self.driver = self._begin(*_UIDS)
        self.world.input += [("key-0", 1000), ("key-1", 1010)]
        finish(self.driver)


@pytest.mark.parametrize("seed", [1, 3, *left_to_test_all((0, 2, *range(4, 60)))])
def test_state_has_the_rows_of_which_the_sink_has_results(changing: ChangingWorld, begin: StartChanging, seed: int) -> None:
    """Steps come, go, and change places between any two steps of the protocol, and checkpoints are damaged."""
    chance = Random(seed)
    changing.upserts = chance.random() < 0.3
    life = ChangingLife(changing, begin, chance)
    life.live()
    life.end()
    for uid in _UIDS:
        changing.check(uid)
        if not life.partial:
            changing.check_output(uid)


def run(driver: ChangingDriver, *, deliver: bool = True, commit: bool = True) -> int:
    """Run the next batch of six rows, or the one that must run again; its number."""
    batch = driver.plan(6)
    assert batch is not None
    driver.run(batch, deliver=deliver, commit=commit)
    return batch


@pytest.mark.parametrize("delivered", [True, False])
def test_a_batch_that_ran_again_with_an_added_step_includes_it(changing: ChangingWorld, begin: StartChanging, delivered: bool) -> None:
    """The changelogs of the step that the first attempt had are not all that the second one has done in the batch."""
    first = begin("a")
    run(first)
    assert run(first, deliver=False) == 1
    assert run(begin("a", "b"), deliver=delivered, commit=False) == 1
    driver = begin("b", "a")
    assert run(driver) == 1
    assert driver.plan(6) == 2
    assert driver.coordinator.view().dry_run is None
    check_all(changing, driver)
    assert changing.steps_of[1] == (("a", "b") if delivered else ("b", "a"))


@pytest.mark.parametrize("deaths", range(3))
def test_a_step_that_was_added_after_the_sink_had_the_batch_begins_after_it(
    changing: ChangingWorld, begin: StartChanging, deaths: int
) -> None:
    """Also if drivers with the step have recorded the batch again and died: none of them has run it."""
    first = begin("a")
    run(first)
    assert run(first, commit=False) == 1
    for _ in range(deaths):
        driver = begin("a", "b")
        assert driver.plan(6) == 1
        driver.begin()
        assert changing.store.head(paths.batch_key(driver.coordinator.view().attempt, 1)) is not None
    driver = begin("a", "b")
    assert run(driver) == 1
    assert driver.plan(6) == 2
    assert driver.coordinator.view().dry_run is None
    check_all(changing, driver)
    assert changing.steps_of[1] == ("a",)


@pytest.mark.parametrize("upgraded", [("a",), ("c", "a"), ("c",)], ids=["dropped", "swapped", "renamed"])
@pytest.mark.parametrize("then", ["nothing", "checkpoint", "next batch", "next batch and checkpoint"])
def test_a_step_that_was_dropped_keeps_the_batch_that_its_attempt_delivered(
    changing: ChangingWorld, begin: StartChanging, upgraded: tuple[str, ...], then: str
) -> None:
    """An upgrade that drops it adopts the batch and is rolled back: the results are in the sink, so the rows are in the state."""
    first = begin("a", "b")
    run(first)
    assert run(first, commit=False) == 1
    driver = begin(*upgraded)
    assert run(driver) == 1
    assert driver.plan(6) == 2
    if then == "checkpoint":
        assert isinstance(driver.checkpoint(), CheckpointInfo)
    elif then.startswith("next batch"):
        request = driver.coordinator.snapshots.request(None) if then.endswith("checkpoint") else None
        driver.run(2, deliver=False)
        if request is not None:
            assert isinstance(driver.outcome(request), CheckpointInfo)
    check_all(changing, begin("a", "b"))


@pytest.mark.parametrize(("reads", "row"), [(0, True), (1, False), (2, False), (2, True), (3, False)])
def test_a_sink_that_reads_a_part_with_an_added_step(changing: ChangingWorld, begin: StartChanging, reads: int, row: bool) -> None:
    """An attempt without the step has processed the batch completely, but it is not the one whose results the sink has."""
    first = begin("a")
    run(first)
    assert run(first, deliver=False) == 1
    driver = begin("a", "b")
    assert driver.plan(6) == 1
    driver.run(1, reads=reads, row=row)
    driver.complete()
    finish(driver)
    for uid in driver.steps:
        changing.check(uid)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("reads", [2, 3])
def test_a_driver_is_lost_whose_sink_has_read_a_part(changing: ChangingWorld, begin: StartChanging, reads: int, before: bool) -> None:
    """It has changelogs of all that the step of the first attempt had to do, and not of all that its own steps had to do."""
    first = begin("a")
    run(first)
    assert first.plan(6) == 1
    first.begin()
    if before:
        first.run(1, deliver=False)
    second = begin("a", "b")
    assert second.plan(6) == 1
    second.run(1, reads=reads, commit=False)
    driver = begin("b", "a")
    assert run(driver) == 1
    driver.complete()
    finish(driver)
    for uid in driver.steps:
        changing.check(uid)


def test_an_attempt_whose_record_is_gone_proves_nothing(changing: ChangingWorld, begin: StartChanging) -> None:
    """Its steps are not known, so the batch is processed again without the sink."""
    first = begin("a", "b")
    run(first)
    assert run(first, commit=False) == 1
    second = begin("a", "b")
    assert second.plan(6) == 1
    second.begin()
    changing.store.delete([paths.batch_key(first.coordinator.view().attempt, 1)])
    driver = begin("a", "b")
    assert run(driver) == 1
    assert driver.coordinator.poll()
    assert driver.coordinator.view().dry_run == 1
    check_all(changing, driver)


def test_the_watermark_of_a_step_that_comes_back_does_not_go_back(changing: ChangingWorld, begin: StartChanging) -> None:
    """The batch that it runs first is one that another pipeline has recorded, which has no watermark for it."""
    first = begin("a", "b")
    for _ in range(3):
        run(first)
    second = begin("a")
    assert run(second) == 2
    assert run(second, deliver=False) == 3
    check_all(changing, begin("a", "b"))


def test_a_record_of_an_earlier_release_does_not_name_the_added_step(changing: ChangingWorld, begin: StartChanging) -> None:
    """It has the watermarks of the first attempt. The step has a changelog, so it took part: the batch is not complete without the others."""
    first = begin("a")
    run(first)
    assert first.plan(6) == 1
    first.begin()
    second = begin("a", "b")
    assert second.plan(6) == 1
    second.run(1, reads=3, commit=False)
    key = paths.batch_key(second.coordinator.view().attempt, 1)
    record = read_record(changing.store, key)
    changing.store.put(key, encode_document("batch", record.model_copy(update={"watermarks": {"a": record.watermarks["a"]}})))
    driver = begin("a", "b")
    assert run(driver) == 1
    driver.complete()
    finish(driver)
    for uid in driver.steps:
        changing.check(uid)


def test_a_slot_that_is_retired_while_it_restores_ends_in_good_order(
    changing: ChangingWorld, begin: StartChanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was adopted meanwhile. The slot supervisor starts the slot again, which is no failure."""
    driver = begin("a", parallelism=1)
    slots = driver.coordinator.slots.table()

    def reach(point: str) -> None:
        if point == "slot.restored":
            slots.retire(0, slots.get(0).epoch)

    monkeypatch.setattr("statefulspark.failpoints.reach", reach)
    assert run_slot(driver._slot_config, 0, "e") == STOPPED
