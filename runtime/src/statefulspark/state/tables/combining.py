"""Reducing and aggregating state: a value that is combined with each added element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.functions import AggregateFunction
from statefulspark.state.api.states import AggregatingState, ReducingState, ValueState


class KeyedReducingState(ReducingState[Any]):
    """Keeps the combination of all added values in ``cell``."""

    __slots__ = ("_cell", "_reduce")

    def __init__(self, cell: ValueState[Any], reduce: Callable[[Any, Any], Any]) -> None:
        self._cell = cell
        self._reduce = reduce

    def get(self) -> Any:
        return self._cell.value()

    def add(self, value: Any) -> None:
        if value is None:
            raise none_added()
        current = self._cell.value()
        self._cell.update(value if current is None else self._reduce(current, value))

    def clear(self) -> None:
        self._cell.clear()


class KeyedAggregatingState(AggregatingState[Any, Any]):
    """Keeps the accumulator in ``cell``."""

    __slots__ = ("_aggregate", "_cell")

    def __init__(self, cell: ValueState[Any], aggregate: AggregateFunction[Any, Any, Any]) -> None:
        self._cell = cell
        self._aggregate = aggregate

    def get(self) -> Any:
        accumulator = self._cell.value()
        return None if accumulator is None else self._aggregate.get_result(accumulator)

    def add(self, value: Any) -> None:
        if value is None:
            raise none_added()
        accumulator = self._cell.value()
        if accumulator is None:
            accumulator = self._aggregate.create_accumulator()
        self._cell.update(self._aggregate.add(value, accumulator))

    def clear(self) -> None:
        self._cell.clear()


def none_added(where: str = "state") -> InvalidInputError:
    """Build the error of adding None to a state; ``where`` names it."""
    return InvalidInputError("None cannot be added", field=where, remedy="Do not add None.")
