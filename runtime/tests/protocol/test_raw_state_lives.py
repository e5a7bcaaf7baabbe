"""Random lives of a job whose function keeps its rows in raw state: every stream follows its key group, whatever dies and is rescaled when."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark import CheckpointedFunction, RuntimeContext, StateInitializationContext, StateSnapshotContext
from statefulspark.checkpoint.inspect.reader import read_state, state_sizes
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.keygroups import key_group_range

from .conftest import Start
from .test_lives import Life, expected, rows_of
from .test_operator_state_lives import OperatorLife
from .world import KEY_GROUPS, STEP, UID, Count, World

_SEEDS = [("memory", 1), ("rocksdb", 0), *left_to_test_all(("memory", seed) for seed in (0, 2, *range(100, 140)))]


class Archive(Count, CheckpointedFunction):
    """Numbers the rows of a key and keeps them in attributes: by key group in raw keyed state, and in one partition each in raw operator state."""

    restored: ClassVar[dict[int, tuple[int, dict[int, list[str]], list[str]]]] = {}
    """Of the first copy that was opened in each slot: parallelism, streams and partitions."""

    def initialize_state(self, context: StateInitializationContext) -> None:
        self.groups = {part.get_key_group_id(): pickle.load(part.get_stream()) for part in context.get_raw_keyed_state_inputs()}
        self.parts = [part.get_stream().read().decode() for part in context.get_raw_operator_state_inputs()]
        self.changed: set[int] = set()

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.context = runtime_context
        slots, slot = runtime_context.get_number_of_parallel_subtasks(), runtime_context.get_index_of_this_subtask()
        own = runtime_context.get_key_group_range()
        assert own == key_group_range(slot, slots, KEY_GROUPS)
        assert all(group in own for group in self.groups), "a stream of a key group of another slot"
        self.restored.setdefault(slot, (slots, {group: rows[:] for group, rows in self.groups.items()}, self.parts[:]))

    def process_element(self, value: Any, ctx: Any) -> Any:
        for result in super().process_element(value, ctx):
            group = self.context.get_current_key_group_index()
            self.groups.setdefault(group, []).append(f"{result[0]}#{result[2]}")
            self.changed.add(group)
            self.parts.append(f"{result[0]}#{result[2]}")
            yield result

    def snapshot_state(self, context: StateSnapshotContext) -> None:
        if not self.changed:
            return
        out = context.get_raw_keyed_operator_state_output(changed_only=True)
        for group in self.changed:
            out.start_new_key_group(group)
            pickle.dump(self.groups[group], out)
        self.changed = set()
        partitions = context.get_raw_operator_state_output()
        for part in self.parts:
            partitions.start_new_partition()
            partitions.write(part.encode())


def live(world: World, start: Start, seed: int) -> None:
    chance = Random(seed)
    world.step = replace(STEP, function=Archive())
    world.input = rows_of(chance)
    life: Life = OperatorLife(world, start, chance)
    life.live()
    life.finish()
    given = Counter((key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows)
    assert given == expected(world.input), world.deaths
    assert verify(world.store.url).problems == ()
    life.driver.close()
    Archive.restored.clear()
    life.driver = start(3)
    assert isinstance(life.driver.checkpoint(), CheckpointInfo)
    wanted = Counter(f"{key}#{number}" for key, kind, number in expected(world.input) if kind == "row")
    streams = [(group, rows) for _, groups, _ in Archive.restored.values() for group, rows in groups.items()]
    assert Counter(row for _, rows in streams for row in rows) == wanted, world.deaths
    assert Counter(part for _, _, parts in Archive.restored.values() for part in parts) == wanted, world.deaths
    # What the commands show of it: how much there is, and not what it means.
    assert [(entry.key_group, entry.key) for entry in read_state(world.store.url, UID, "_raw_keyed")] == [
        (group, None) for group, _ in sorted(streams)
    ]
    shown = {size.info.name: size.entries for size in state_sizes(world.store.url)}
    assert (shown["_raw_keyed"], shown["_raw_operator"]) == (len(streams), wanted.total())


@pytest.mark.parametrize(("world", "seed"), _SEEDS, indirect=["world"])
def test_streams_follow_their_key_groups(world: World, start: Start, seed: int) -> None:
    """Whatever dies when, each row is in the stream of its key group and in one partition, and output and keyed state are right."""
    live(world, start, seed)
