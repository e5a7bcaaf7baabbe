"""Random lives of a job whose function keeps operator state: every row stays in exactly one slot's list, whatever dies and is rescaled when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    RuntimeContext,
    Types,
)
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.coordinator.controls import CheckpointInfo

from .conftest import Start
from .test_lives import Life, expected, rows_of
from .world import STEP, UID, Count, World

_SEEDS = [("memory", 1), ("rocksdb", 0), *left_to_test_all(("memory", seed) for seed in (0, 2))]
_RESTORING = (None, None, None, "slot.restored", "slot.opened")


class Remember(Count, CheckpointedFunction):
    """Numbers the rows of a key and keeps each row's number in an attribute, which it writes to a split list and to a union list.

    Only ``snapshot_state`` writes the lists, so an attribute that outlives an undone batch, or a list that is lost, gives wrong rows.
    """

    restored: ClassVar[list[tuple[int, int, list[str], list[str]]]] = []
    """Of each copy that was opened: parallelism, slot, split list and union list."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split", Types.STRING()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING()))
        self.rows = list(self.split.get())
        self.all_rows = list(self.union.get())
        assert len(set(self.all_rows)) == len(self.all_rows), "an element of the union list has multiplied"
        assert set(self.rows) <= set(self.all_rows), "the split list and the union list are not of one batch"
        assert context.is_restored() or not self.rows

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        slots, slot = runtime_context.get_number_of_parallel_subtasks(), runtime_context.get_index_of_this_subtask()
        self.restored.append((slots, slot, self.rows[:], self.all_rows))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        assert context.get_checkpoint_id() >= -1
        self.split.update(self.rows)
        self.union.update(self.rows)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        for result in super().process_element(value, ctx):
            self.rows.append(f"{result[0]}#{result[2]}")
            yield result


class OperatorLife(Life):
    """A life in which drivers and slots are replaced without a batch between, and slots die before they are ready."""

    def _started(self) -> Any:
        self.world.doomed = self.chance.choice(_RESTORING)
        Remember.restored.clear()
        try:
            driver = super()._started()
        finally:
            self.world.doomed = None
        self._check_distribution()
        return driver

    def _check_distribution(self) -> None:
        """Every slot was first opened with the same union list, which has the elements of all split lists."""
        first: dict[tuple[int, int], tuple[list[str], list[str]]] = {}
        for slots, slot, rows, all_rows in Remember.restored:
            first.setdefault((slots, slot), (rows, all_rows))
        unions = [sorted(all_rows) for _, all_rows in first.values()]
        split = sorted(row for rows, _ in first.values() for row in rows)
        assert all(union == split for union in unions), "slots did not get the same elements"

    def _between_batches(self) -> None:
        for _ in range(self.chance.choice((0, 1, 1, 2, 3))):
            if self.driver.is_interrupted():
                return  # the batch that runs again comes first
            if self.likely(0.3):
                self._rescale()
            elif self.likely(0.2):
                self.driver.close()
                self.driver = self._started()
            else:
                super()._between_batches()

    def _rescale(self) -> None:
        self.world.doomed = self.chance.choice(_RESTORING)
        Remember.restored.clear()
        try:
            self.driver.rescale(self.chance.randint(1, 4))
        finally:
            self.world.doomed = None
        self._check_distribution()


def elements(world: World, name: str) -> Counter[str]:
    """Elements of an operator state in the newest checkpoint."""
    return Counter(entry.value for entry in read_state(world.store.url, UID, name))


def live(world: World, start: Start, seed: int) -> None:
    chance = Random(seed)
    world.step = replace(STEP, function=Remember())
    world.input = rows_of(chance)
    life = OperatorLife(world, start, chance)
    life.live()
    life.finish()
    given = Counter((key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows)
    assert given == expected(world.input), world.deaths
    wanted = Counter(f"{key}#{number}" for key, kind, number in expected(world.input) if kind == "row")
    assert elements(world, "split") == wanted, world.deaths
    assert verify(world.store.url).problems == ()
    # What the last checkpoint has, all slots of another parallelism get.
    life.driver.close()
    life.driver = life._started()
    assert isinstance(life.driver.checkpoint(), CheckpointInfo)
    assert elements(world, "split") == elements(world, "union") == wanted


@pytest.mark.parametrize(("world", "seed"), _SEEDS, indirect=["world"])
def test_every_row_is_in_one_list(world: World, start: Start, seed: int) -> None:
    """Whatever dies when, the split list has each row once, the union list is the same in every slot, and output and keyed state are right."""
    live(world, start, seed)
