"""What windows keep of their rows: one combined value, or every row."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.process.functions import RuntimeContext
from statefulspark.process.output import OutputSchema
from statefulspark.process.row_types import row_type_info
from statefulspark.process.windows.evictors import Evictor
from statefulspark.process.windows.window_states import bytes_map
from statefulspark.process.windows.windows import Window
from statefulspark.state.api.functions import AggregateFunction, ReduceFunction
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.types import Types

__all__ = ["AggregatedContents", "Emit", "ListContents", "ReducedContents", "WindowContents"]

Emit = Callable[[list[Any]], list[Any]]
"""Makes output rows of what a window function gets."""
_NUMBER: Final = struct.Struct(">Q")


def in_columns(rows: OutputSchema, schema: pa.Schema, row: Any) -> tuple[Any, ...]:
    """Return what a reduce function returned, in column order.

    Raises:
        InvalidInputError: It has other columns.
    """
    values = rows.in_column_order(row)
    if len(values) != len(schema.names):
        raise InvalidInputError(
            f"it returned {len(values)} values for {len(schema.names)} columns ({', '.join(schema.names)})",
            field="reduce",
            remedy="Return a row of the same columns",
        )
    return values


class WindowContents(ABC):
    """The contents of the windows of the current key; ``window`` is always the bytes of one."""

    name: ClassVar[str]
    """Part of the names of all states of the step: state of one kind of contents is never read as another's."""

    @abstractmethod
    def open(self, context: RuntimeContext, scope: str) -> None:
        """Declare the states. ``scope`` is the kinds of windows and contents, part of the names of the states."""

    def close(self) -> None:  # noqa: B027  only some have a function
        """Close the function."""

    @abstractmethod
    def add(self, window: bytes, value: Any, timestamp: int | None) -> None:
        """Add a row."""

    @abstractmethod
    def get(self, window: bytes) -> list[Any] | None:
        """Return what the window function gets, None if there is nothing."""

    def fired(self, data: bytes, window: Window, context: Evictor.EvictorContext, emit: Emit) -> list[Any]:  # noqa: ARG002  for evictors
        """Return what ``emit`` makes of the contents; nothing if there are none. ``data`` is the bytes under which they are kept."""
        elements = self.get(data)
        return [] if elements is None else emit(elements)

    @abstractmethod
    def clear(self, window: bytes) -> None:
        """Remove everything."""

    @abstractmethod
    def merge(self, target: bytes, sources: Iterable[bytes]) -> None:
        """Move the contents of other windows to that of ``target``."""


class ReducedContents(WindowContents):
    """The combination of all rows.

    Args:
        function: Combines two rows.
        schema: The columns of the rows, also of the combined one.
    """

    name = "reduced"

    def __init__(self, function: ReduceFunction[Any], schema: pa.Schema) -> None:
        self._function = function
        self._schema = schema

    def open(self, context: RuntimeContext, scope: str) -> None:
        self._function.open(context)
        self._rows = OutputSchema(self._schema, f"reduce of the step {context.get_task_name()!r}", field="reduce")
        self._state = bytes_map(context, f"_window({scope})", row_type_info(self._schema))

    def close(self) -> None:
        self._function.close()

    def add(self, window: bytes, value: Any, timestamp: int | None) -> None:
        del timestamp
        current = self._state.get(window)
        self._state.put(window, tuple(value) if current is None else self.combined(current, value))

    def combined(self, first: Any, second: Any) -> tuple[Any, ...]:
        """Combine two rows."""
        return in_columns(self._rows, self._schema, self._function.reduce(first, second))

    def get(self, window: bytes) -> list[Any] | None:
        value = self._state.get(window)
        return None if value is None else [value]

    def clear(self, window: bytes) -> None:
        if self._state.contains(window):
            self._state.remove(window)

    def merge(self, target: bytes, sources: Iterable[bytes]) -> None:
        for source in sources:
            value, mine = self._state.get(source), self._state.get(target)
            if value is not None:
                self._state.remove(source)
                self._state.put(target, value if mine is None else self.combined(mine, value))


class AggregatedContents(WindowContents):
    """The accumulator of all rows.

    Args:
        function: Makes it and the result.
        accumulator_type: How it is stored.
    """

    name = "aggregated"

    def __init__(self, function: AggregateFunction[Any, Any, Any], accumulator_type: TypeInformation) -> None:
        self._function = function
        self._type = accumulator_type

    def open(self, context: RuntimeContext, scope: str) -> None:
        self._function.open(context)
        self._state = bytes_map(context, f"_window({scope})", self._type)

    def close(self) -> None:
        self._function.close()

    def add(self, window: bytes, value: Any, timestamp: int | None) -> None:
        del timestamp
        accumulator = self._state.get(window) if self._state.contains(window) else self._function.create_accumulator()
        self._state.put(window, self._function.add(value, accumulator))

    def get(self, window: bytes) -> list[Any] | None:
        return [self._function.get_result(self._state.get(window))] if self._state.contains(window) else None

    def clear(self, window: bytes) -> None:
        if self._state.contains(window):
            self._state.remove(window)

    def merge(self, target: bytes, sources: Iterable[bytes]) -> None:
        for source in sources:
            if not self._state.contains(source):
                continue
            value = self._state.get(source)
            self._state.remove(source)
            self._state.put(target, self._function.merge(self._state.get(target), value) if self._state.contains(target) else value)


class ListContents(WindowContents):
    """All rows. Each is an entry of its own, so that one more row writes that row only.

    Args:
        schema: The columns of the rows.
    """

    name = "list"

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def open(self, context: RuntimeContext, scope: str) -> None:
        self._rows = bytes_map(context, f"_window({scope})", self._type())
        self._next = bytes_map(context, f"_window_next({scope})", Types.LONG())

    def _type(self) -> TypeInformation:
        return row_type_info(self._schema)

    def _entry(self, value: Any, timestamp: int | None) -> Any:
        del timestamp
        return tuple(value)

    def add(self, window: bytes, value: Any, timestamp: int | None) -> None:
        self._append(window, [self._entry(value, timestamp)])

    def _append(self, window: bytes, entries: Sequence[Any]) -> None:
        number = self._next.get(window) or 0
        for entry in entries:
            self._rows.put(window + _NUMBER.pack(number), entry)
            number += 1
        self._next.put(window, number)

    def get(self, window: bytes) -> list[Any] | None:
        return [self._rows.get(key) for key in self._keys(window)] or None

    def clear(self, window: bytes) -> None:
        # Key by key: a scan would look at everything that the batch has changed of the key.
        for key in self._keys(window):
            self._rows.remove(key)
        if self._next.contains(window):
            self._next.remove(window)

    def merge(self, target: bytes, sources: Iterable[bytes]) -> None:
        for source in sources:
            rows = self.get(source) or []
            self.clear(source)
            self._append(target, rows)

    def _keys(self, window: bytes) -> Iterator[bytes]:
        """The keys of a window's rows, in the order in which they came."""
        return (window + _NUMBER.pack(number) for number in range(self._next.get(window) or 0))
