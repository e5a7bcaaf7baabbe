"""A state that was renamed in the code never starts empty without a word."""

from __future__ import annotations

from typing import Any

import pytest

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.errors import NotRestorableError

from .conftest import Start
from .world import Count, Driver, World, state_of

REFUSED = (
    r"^state 'nmber' of uid 'count': it is new and would start empty, and the restored state .*'number'.* is .* Declare it as 'number'"
)


class Renamed(Count):
    """Calls its state by another name."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(_Renaming(runtime_context))  # type: ignore[arg-type]  # all that open() uses


class _Renaming:
    def __init__(self, inner: RuntimeContext) -> None:
        self._inner = inner

    def get_state(self, descriptor: ValueStateDescriptor) -> Any:
        renamed = descriptor.get_name() == "number"
        return self._inner.get_state(ValueStateDescriptor("nmber", descriptor.type_info) if renamed else descriptor)


class RenamedLater(Renamed):
    """Declares it with the first row."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.runtime_context = runtime_context

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if not hasattr(self, "number"):
            super().open(self.runtime_context)
        yield from super().process_element(value, ctx)


class InOneSlot(Count):
    """Declares the state that was there in one slot only, and a new one in each."""

    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("added", Types.LONG()))
        self.runtime_context = runtime_context
        if runtime_context.get_index_of_this_subtask() == 1:
            super().open(runtime_context)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if not hasattr(self, "number"):
            Count.open(self, self.runtime_context)
        yield from super().process_element(value, ctx)


def ran(driver: Driver, rows: int = 100) -> None:
    batch = driver.plan(rows)
    assert batch is not None
    driver.run(batch)


def numbers(world: World) -> list[int]:
    return sorted(row[2] for rows in world.sink.values() for row in rows if row[1] == "row")


@pytest.fixture
def begun(world: World, start: Start) -> World:
    """A job with two batches, the first of them in a checkpoint."""
    world.input = [("a", 1), ("b", 2), ("c", 3), ("a", 4)]
    driver = start()
    ran(driver, 3)
    driver.checkpoint()
    ran(driver)
    driver.checkpoint()
    driver.close()
    world.input += [("a", 5), ("b", 6), ("c", 7)]
    return world


@pytest.mark.parametrize("function", [Renamed(), RenamedLater()])
def test_a_renamed_state_is_refused_before_a_batch_commits(begun: World, start: Start, function: KeyedProcessFunction) -> None:
    """In open() or with the first row: the job ends with an error that names both; with the old name it goes on with all its state."""
    begun.function = function
    driver = start()
    with pytest.raises(NotRestorableError, match=REFUSED):
        ran(driver)
    assert isinstance(driver.coordinator.fatal, NotRestorableError)
    driver.close()
    begun.function = Count()
    ran(start())
    assert numbers(begun) == [1, 1, 1, 2, 2, 2, 3]


def test_with_allow_non_restored_state_it_starts_empty(begun: World, start: Start) -> None:
    """As it was asked for; what is left behind stays in the checkpoints."""
    begun.function, begun.allow_non_restored = Renamed(), True
    driver = start()
    ran(driver)
    assert numbers(begun) == [1, 1, 1, 1, 1, 1, 2]
    driver.checkpoint()
    assert len(state_of(begun, "nmber")) == len(state_of(begun, "number")) == 3


def test_a_state_that_one_slot_declares_is_not_missing(begun: World, start: Start) -> None:
    """Slots may declare different states; only what none of them has is missing, and no batch runs before all of them have opened."""
    begun.function = InOneSlot()
    ran(start())
    assert numbers(begun) == [1, 1, 1, 2, 2, 2, 3]
