"""Runs co-map and co-flat-map functions as keyed co-process functions, for the methods of the same names of connected streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.process.api.co_functions import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction
from statefulspark.process.api.functions import RuntimeContext

__all__ = ["AnyCoFunction", "CoFlatMapAdapter", "CoMapAdapter", "co_adapted"]

AnyCoFunction: TypeAlias = KeyedCoProcessFunction | CoMapFunction | CoFlatMapFunction
"""A function of a step with two inputs, with or without an adapter."""


def co_adapted(function: AnyCoFunction) -> KeyedCoProcessFunction:
    """Return ``function``, if necessary in the adapter of its class."""
    if isinstance(function, CoMapFunction):
        return CoMapAdapter(function)
    return CoFlatMapAdapter(function) if isinstance(function, CoFlatMapFunction) else function


class CoMapAdapter(KeyedCoProcessFunction):
    """Emits the result of ``func`` for each row, unless it is None; opens and closes it.

    Raises:
        InvalidInputError: ``func`` is no CoMapFunction.
    """

    def __init__(self, func: CoMapFunction) -> None:
        _check(func, CoMapFunction, "map")
        self.user_function = func

    def open(self, runtime_context: RuntimeContext) -> None:
        self.user_function.open(runtime_context)

    def close(self) -> None:
        self.user_function.close()

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:  # noqa: ARG002
        return _unless_none(self.user_function.map1(value))

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:  # noqa: ARG002
        return _unless_none(self.user_function.map2(value))


def _unless_none(result: Any) -> Iterable[Any]:
    """Emit nothing for None, as PyFlink does for connected streams."""
    return () if result is None else (result,)


class CoFlatMapAdapter(KeyedCoProcessFunction):
    """Emits the results of ``func`` for each row; opens and closes it.

    Raises:
        InvalidInputError: ``func`` is no CoFlatMapFunction.
    """

    def __init__(self, func: CoFlatMapFunction) -> None:
        _check(func, CoFlatMapFunction, "flat_map")
        self.user_function = func

    def open(self, runtime_context: RuntimeContext) -> None:
        self.user_function.open(runtime_context)

    def close(self) -> None:
        self.user_function.close()

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:  # noqa: ARG002
        return self.user_function.flat_map1(value)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:  # noqa: ARG002
        return self.user_function.flat_map2(value)


def _check(func: object, wanted: type, method: str) -> None:
    if not isinstance(func, wanted):
        found = f"the class {func.__name__}" if isinstance(func, type) else type_name(type(func))
        raise InvalidInputError(
            f"expected {type_name(wanted)}, got {found}",
            field=method,
            remedy=f"Pass an instance of {type_name(wanted)}, which has a method for each input",
        )
