"""Random lives in mode ``at-least-once`` of jobs with operator, raw and broadcast state: no state is lost or counted twice, whatever dies when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.testing.inputs import BROADCAST

from . import test_broadcast_lives as broadcast
from .conftest import Start
from .test_at_least_once import RepeatingLife, check, given
from .test_lives import Life, expected, rows_of
from .test_operator_state_lives import OperatorLife, Remember, elements
from .test_raw_state_lives import Archive
from .world import LATER_MS, STEP, World

_SEEDS = [("memory", 0), *left_to_test_all((("memory", 1), ("memory", 2), ("rocksdb", 3)))]


class RepeatingOperatorLife(RepeatingLife, OperatorLife):
    """Both."""


def lived(life: Life) -> None:
    """Live to the end of the input."""
    life.live()
    life.world.doomed = None
    life.finish()


@pytest.mark.parametrize(("world", "seed"), _SEEDS, indirect=["world"])
def test_every_row_is_in_one_list(world: World, start: Start, seed: int) -> None:
    """The split list has each row once, and slots of another parallelism get the same."""
    chance = Random(2000 + seed)
    world.step, world.input = replace(STEP, function=Remember()), rows_of(chance)
    life = RepeatingOperatorLife(world, start, chance)
    lived(life)
    check(world)
    wanted = Counter(f"{key}#{number}" for key, kind, number in expected(world.input) if kind == "row")
    assert elements(world, "split") == wanted, world.deaths
    life.driver.close()
    life.driver = life._started()
    assert isinstance(life.driver.checkpoint(), CheckpointInfo)
    assert elements(world, "split") == elements(world, "union") == wanted


@pytest.mark.parametrize(("world", "seed"), _SEEDS, indirect=["world"])
def test_streams_follow_their_key_groups(world: World, start: Start, seed: int) -> None:
    """Each row is in the stream of its key group, and in one partition."""
    chance = Random(3000 + seed)
    world.step, world.input = replace(STEP, function=Archive()), rows_of(chance)
    life = RepeatingOperatorLife(world, start, chance)
    lived(life)
    check(world)
    life.driver.close()
    Archive.restored.clear()
    start(3)
    wanted = Counter(f"{key}#{number}" for key, kind, number in expected(world.input) if kind == "row")
    opened = Archive.restored.values()
    assert Counter(row for _, groups, _ in opened for rows in groups.values() for row in rows) == wanted, world.deaths
    assert Counter(part for _, _, parts in opened for part in parts) == wanted, world.deaths


@pytest.mark.parametrize(("world", "seed"), _SEEDS, indirect=["world"])
def test_all_slots_have_the_rules(world: World, start: Start, seed: int) -> None:
    """Every slot has the rules of a plain dict in the end, each rule was applied once, and each timer fired."""
    chance = Random(4000 + seed)
    world.step = broadcast.step(None)
    World.__post_init__(world)
    world.input = broadcast.rows_of(chance)
    life = RepeatingLife(world, start, chance)
    lived(life)
    oracle = broadcast.Oracle([world.input], None)
    wanted = (oracle.rules, {"number": oracle.applied} if oracle.applied else {})
    assert broadcast.copies(life.driver) == [wanted] * life.driver.parallelism, world.deaths
    fired = {(row[0], row[4]) for rows in world.sink.values() for row in rows if row[1] == "timer"}
    assert fired == {(row[1], row[0] + LATER_MS) for row in world.input if not isinstance(row, BROADCAST)}
    assert {number for key, kind, number in given(world) if kind == "rule"} == set(range(1, oracle.applied + 1))
    assert verify(world.store.url).problems == ()
