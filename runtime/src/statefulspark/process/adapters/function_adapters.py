"""Runs map, flat-map, filter and reduce functions as keyed process functions, for the methods of the same names of keyed streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import pyarrow as pa

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.process.adapters.co_function_adapters import AnyCoFunction, CoFlatMapAdapter, CoMapAdapter, co_adapted
from statefulspark.process.api.broadcast_functions import KeyedBroadcastProcessFunction
from statefulspark.process.api.co_functions import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction, StepFunction
from statefulspark.process.api.functions import FilterFunction, FlatMapFunction, KeyedProcessFunction, MapFunction, RuntimeContext
from statefulspark.process.batches.functions import BatchKeyedProcessFunction
from statefulspark.process.output.output import OutputSchema
from statefulspark.process.rows.row_types import row_type_info
from statefulspark.state.api.descriptors import ReducingStateDescriptor
from statefulspark.state.api.functions import Function, ReduceFunction
from statefulspark.state.api.names import RuntimeName

__all__ = [
    "REDUCE_STATE",
    "AnyFunction",
    "AnyKeyedFunction",
    "FilterAdapter",
    "FlatMapAdapter",
    "MapAdapter",
    "ReduceAdapter",
    "adapted",
    "adapted_to",
    "only_orders",
    "unwrapped",
]

REDUCE_STATE: Final = RuntimeName("_reduce")
"""Name of the state of ``reduce``, part of the format of checkpoints."""


class _Adapter(KeyedProcessFunction):
    """Opens and closes the function that it runs.

    Args:
        func: An instance of ``wanted``, or a callable.
        wanted: The class whose method ``method`` is called.
        method: Its name, which is also that of the argument in errors.

    Attributes:
        user_function: ``func`` if it is an instance of ``wanted``, or None.

    Raises:
        InvalidInputError: ``func`` is neither.
    """

    def __init__(self, func: Any, wanted: type[Function], method: str) -> None:
        is_class = isinstance(func, type) and issubclass(func, Function)
        if not isinstance(func, wanted) and (is_class or not callable(func)):
            found = f"the class {func.__name__}" if is_class else type(func).__name__
            raise InvalidInputError(
                f"expected {type_name(wanted)} or a function, got {found}",
                field=method,
                remedy=f"Pass an instance of {type_name(wanted)}, or a function of {_ARGUMENTS[wanted]}",
            )
        self.user_function = func if isinstance(func, wanted) else None
        self._call: Callable[..., Any] = getattr(func, method) if isinstance(func, wanted) else func

    def open(self, runtime_context: RuntimeContext) -> None:
        if self.user_function is not None:
            self.user_function.open(runtime_context)

    def close(self) -> None:
        if self.user_function is not None:
            self.user_function.close()

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None: ...


_ARGUMENTS: Final[dict[type[Function], str]] = {
    MapFunction: "one row",
    FlatMapFunction: "one row",
    FilterFunction: "one row",
    ReduceFunction: "two rows",
}


AnyKeyedFunction: TypeAlias = (
    KeyedProcessFunction | BatchKeyedProcessFunction | MapFunction | FlatMapFunction | FilterFunction | ReduceFunction[Any]
)
"""A function of a keyed step with one input, with or without an adapter."""
AnyFunction: TypeAlias = AnyKeyedFunction | AnyCoFunction | KeyedBroadcastProcessFunction
"""A function of any keyed step, with or without an adapter."""


def adapted(function: AnyKeyedFunction, input_schema: pa.Schema) -> KeyedProcessFunction | BatchKeyedProcessFunction:
    """Return ``function``, if necessary in the adapter of its class."""
    if isinstance(function, MapFunction):
        return MapAdapter(function)
    if isinstance(function, FlatMapFunction):
        return FlatMapAdapter(function)
    if isinstance(function, FilterFunction):
        return FilterAdapter(function)
    return ReduceAdapter(function, input_schema) if isinstance(function, ReduceFunction) else function


def adapted_to(function: AnyFunction, input_schema: pa.Schema) -> StepFunction:
    """Return a function for whatever inputs, if necessary in the adapter of its class."""
    if isinstance(function, KeyedBroadcastProcessFunction):
        return function
    if isinstance(function, KeyedCoProcessFunction | CoMapFunction | CoFlatMapFunction):
        return co_adapted(function)
    return adapted(function, input_schema)


def unwrapped(function: StepFunction) -> Function:
    """Return the function that the user passed to ``process``, ``map`` and so on, without its adapter."""
    user = function.user_function if isinstance(function, _Adapter | CoMapAdapter | CoFlatMapAdapter) else None
    return function if user is None else user


def only_orders(function: StepFunction) -> bool:
    """Return True if event time only orders the rows of a function: it has no timers, and nothing waits for its watermark."""
    return isinstance(function, _Adapter | CoMapAdapter | CoFlatMapAdapter)


class MapAdapter(_Adapter):
    """Emits the result of ``func`` for each row."""

    def __init__(self, func: MapFunction | Callable[[Any], Any]) -> None:
        super().__init__(func, MapFunction, "map")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:  # noqa: ARG002
        return (self._call(value),)


class FlatMapAdapter(_Adapter):
    """Emits the results of ``func`` for each row."""

    def __init__(self, func: FlatMapFunction | Callable[[Any], Iterable[Any] | None]) -> None:
        super().__init__(func, FlatMapFunction, "flat_map")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:  # noqa: ARG002
        produced: Iterable[Any] | None = self._call(value)
        return produced


class FilterAdapter(_Adapter):
    """Emits the rows for which ``func`` returns something true."""

    def __init__(self, func: FilterFunction | Callable[[Any], object]) -> None:
        super().__init__(func, FilterFunction, "filter")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:  # noqa: ARG002
        return (value,) if self._call(value) else None


class ReduceAdapter(_Adapter):
    """Keeps the combination of a key's rows in reducing state and emits it after each row.

    Args:
        func: Combines the row kept so far, a `Row`, and a new one.
        schema: The columns of rows, also of the combined ones.
        state_name: Name of the state.
    """

    def __init__(
        self, func: ReduceFunction[Any] | Callable[[Any, Any], Any], schema: pa.Schema, *, state_name: RuntimeName = REDUCE_STATE
    ) -> None:
        super().__init__(func, ReduceFunction, "reduce")
        self._schema = schema
        self._state_name = state_name

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._rows = OutputSchema(self._schema, f"reduce of the step {runtime_context.get_task_name()!r}", field="reduce")
        descriptor = ReducingStateDescriptor(self._state_name, self._combine, row_type_info(self._schema))
        self._reduced = runtime_context.get_reducing_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:  # noqa: ARG002
        # The combined value is kept here, because reading it from the state would decode it again. The first row is combined with nothing.
        self._latest: Any = value
        self._reduced.add(value)
        return (self._latest,)

    def _combine(self, value1: Any, value2: Any) -> tuple[Any, ...]:
        combined = self._rows.in_column_order(self._call(value1, value2))
        self._latest = combined
        return combined
