"""A fenced attempt completes a batch after its successor has started, with state ids that the successor has given to other states."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.errors import FencedError

from .conftest import Start
from .world import Count, Driver, World, state_of

_OLD, _NEW = 777, 1


class DeclaresLater(Count):
    """Declares a state with the fifth row of a key, which no batch before has used."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.runtime_context = runtime_context

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if (self.number.value() or 0) >= 4:
            self.runtime_context.get_state(ValueStateDescriptor("old", Types.LONG())).update(_OLD)
        yield from super().process_element(value, ctx)


class DeclaresFirst(Count):
    """The next release: declares another state when it is opened."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.new = runtime_context.get_state(ValueStateDescriptor("new", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        assert self.new.value() in (None, _NEW), "it has the values of another state"
        self.new.update(_NEW)
        yield from super().process_element(value, ctx)


class Same(DeclaresLater):
    """The next release without another state."""


@pytest.mark.parametrize(("release", "taken_over"), [(DeclaresFirst(), False), (Same(), True)], ids=["other ids", "same ids"])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_batch_is_taken_over_only_with_state_ids_that_mean_the_same(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch, release: KeyedProcessFunction, taken_over: bool
) -> None:
    """Otherwise the batch is processed again without the sink, so that each row counts once and no state has another's values."""
    world.input = [("a", 10 * n) for n in range(12)]
    world.function = DeclaresLater()
    old = start(1)
    assert old.plan(4) == 0
    old.run(0)
    assert old.plan(4) == 1
    successors: list[Driver] = []

    def reach(name: str) -> None:
        if name == "slot.processed" and not successors:
            world.function = release
            successors.append(start(1))
            world.clock_s += 60  # the old driver was paused

    monkeypatch.setattr("statefulspark.failpoints.reach", reach)
    with pytest.raises(FencedError):
        old.run(1)
    (new,) = successors
    world.sink[1] = []  # the commit of the old driver's sink lands late
    assert new.plan(4) == 1
    new.run(1)
    assert new.coordinator.poll() is not taken_over
    assert new.coordinator.view().dry_run == (None if taken_over else 1)
    new.complete()
    assert new.coordinator.view().committed == 1
    assert new.plan(4) == 2
    new.run(2)
    new.checkpoint()
    assert state_of(world, "number") == [("a", Counter(key for key, _ in world.input)["a"])]
    if taken_over:
        assert state_of(world, "old") == [("a", _OLD)]
    else:
        assert state_of(world, "new") == [("a", _NEW)]
