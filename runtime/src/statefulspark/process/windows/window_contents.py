"""Contents of windows: one combined value, or every row."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.functions import RuntimeContext
from statefulspark.process.output.output import OutputSchema
from statefulspark.process.rows.row_types import row_type_info
from statefulspark.process.runner.callbacks import is_own
from statefulspark.process.windows.evictors import Evictor
from statefulspark.process.windows.window_states import bytes_map
from statefulspark.process.windows.windows import Window
from statefulspark.state.api.functions import AggregateFunction, Function, ReduceFunction
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.encoding.values import Encoded
from statefulspark.state.tables.maps import ABSENT
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.types import Types

__all__ = ["AggregatedContents", "CombinedContents", "Emit", "ListContents", "ReducedContents", "WindowContents"]

Emit = Callable[[list[Any]], list[Any]]
"""Makes output rows of what a window function gets."""
_NUMBER: Final = struct.Struct(">Q")


def in_columns(rows: OutputSchema, schema: pa.Schema, row: Any) -> tuple[Any, ...]:
    """Return the result of a reduce function in column order.

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
        """Return the window function's input, or None if there is none."""

    def fired(self, data: bytes, window: Window, context: Evictor.EvictorContext, emit: Emit) -> list[Any]:  # noqa: ARG002  for evictors
        """Return the rows that ``emit`` makes of the contents; none if the window is empty. ``data`` is the bytes under which they are kept."""
        elements = self.get(data)
        return [] if elements is None else emit(elements)

    @abstractmethod
    def clear(self, window: bytes) -> None:
        """Remove everything."""

    @abstractmethod
    def merge(self, target: bytes, sources: Iterable[bytes]) -> None:
        """Move the contents of other windows to that of ``target``."""


class CombinedContents(WindowContents):
    """One value per window, which each row changes.

    An **entry** is what the map state keeps of such a value. It stays valid while rows are added: what a user's function could change is kept
    as bytes. So a caller may take an entry, add many rows to it, and put it back once.
    """

    def open(self, context: RuntimeContext, scope: str) -> None:
        self._function().open(context)
        type_ = self.value_type()
        self._state = bytes_map(context, RuntimeName(f"_window({scope})"), type_)
        self._accepted_class = type_.accepted_class

    def close(self) -> None:
        self._function().close()

    @abstractmethod
    def _function(self) -> Function:
        """Return the user's function."""

    @abstractmethod
    def value_type(self) -> TypeInformation:
        """Return the type of the value."""

    @abstractmethod
    def _first(self, row: Any) -> Any:
        """Return the value of one row."""

    @abstractmethod
    def _added(self, value: Any, row: Any) -> Any:
        """Return the value with one more row."""

    @abstractmethod
    def _merged(self, value: Any, other: Any) -> Any:
        """Return the value of the rows of both."""

    @abstractmethod
    def _result(self, value: Any) -> Any:
        """Return the window function's input."""

    def may_exist(self, *, look_again: bool) -> bool:
        """Return False if no key of the current key's key group has contents; see `KeyedMapState.may_have_entries`."""
        return self._state.may_have_entries(look_again=look_again)

    def entry(self, window: bytes) -> Any:
        """Return the entry of a window, `ABSENT` if it has no contents."""
        return self._state.entry(window)

    def put(self, window: bytes, entry: Any) -> None:
        """Replace the entry of a window; `ABSENT` removes it."""
        self._state.put_entry(window, entry)

    def with_row(self, entry: Any, row: Any) -> Any:
        """Return the entry with one more row."""
        if entry is ABSENT:
            value = self._first(row)
        else:
            value = self._added(self._state.value_of(entry) if entry.__class__ is Encoded else entry, row)
        return value if value.__class__ is self._accepted_class else self._state.accepted(value)

    def joined(self, entry: Any, other: Any) -> Any:
        """Return the entry of two windows that have become one."""
        if entry is ABSENT or other is ABSENT:
            return other if entry is ABSENT else entry
        state = self._state
        return state.accepted(self._merged(state.value_of(entry), state.value_of(other)))

    def elements(self, entry: Any) -> list[Any] | None:
        """Return the window function's input, or None if there is none."""
        if entry is ABSENT:
            return None
        return [self._result(self._state.value_of(entry) if entry.__class__ is Encoded else entry)]

    def add(self, window: bytes, value: Any, timestamp: int | None) -> None:
        del timestamp
        self._state.put_entry(window, self.with_row(self._state.entry(window), value))

    def get(self, window: bytes) -> list[Any] | None:
        return self.elements(self._state.entry(window))

    def clear(self, window: bytes) -> None:
        if self._state.entry(window) is not ABSENT:
            self._state.put_entry(window, ABSENT)

    def merge(self, target: bytes, sources: Iterable[bytes]) -> None:
        for source in sources:
            entry = self._state.entry(source)
            if entry is not ABSENT:
                self._state.put_entry(source, ABSENT)
                self._state.put_entry(target, self.joined(self._state.entry(target), entry))


class ReducedContents(CombinedContents):
    """The combination of all rows.

    Args:
        function: Combines two rows.
        schema: The columns of the rows, also of the combined one.
    """

    name = "reduced"

    def __init__(self, function: ReduceFunction[Any], schema: pa.Schema) -> None:
        self._reduce = function
        self._schema = schema

    def open(self, context: RuntimeContext, scope: str) -> None:
        self._rows = OutputSchema(self._schema, f"reduce of the step {context.get_task_name()!r}", field="reduce")
        super().open(context, scope)

    def _function(self) -> Function:
        return self._reduce

    def value_type(self) -> TypeInformation:
        return row_type_info(self._schema)

    def _first(self, row: Any) -> Any:
        return tuple(row)

    def _added(self, value: Any, row: Any) -> Any:
        return in_columns(self._rows, self._schema, self._reduce.reduce(value, row))

    def _merged(self, value: Any, other: Any) -> Any:
        return self._added(value, other)

    def _result(self, value: Any) -> Any:
        return value


class AggregatedContents(CombinedContents):
    """The accumulator of all rows.

    Args:
        function: Makes it and the result.
        accumulator_type: How it is stored.
    """

    name = "aggregated"

    def __init__(self, function: AggregateFunction[Any, Any, Any], accumulator_type: TypeInformation) -> None:
        self._aggregate = function
        self._type = accumulator_type

    def _function(self) -> Function:
        return self._aggregate

    def value_type(self) -> TypeInformation:
        return self._type

    @property
    def needs_key(self) -> bool:
        """True if the function may use state of its own: it has an ``open``, which got the context of the step."""
        return is_own(self._aggregate.open, Function.open)

    def with_row(self, entry: Any, row: Any) -> Any:
        # For each row: what the class above does, with fewer calls.
        aggregate = self._aggregate
        if entry is ABSENT:
            entry = aggregate.create_accumulator()
        elif entry.__class__ is Encoded:
            entry = self._state.value_of(entry)
        value = aggregate.add(row, entry)
        return value if value.__class__ is self._accepted_class else self._state.accepted(value)

    def elements(self, entry: Any) -> list[Any] | None:
        if entry is ABSENT:
            return None
        return [self._aggregate.get_result(self._state.value_of(entry) if entry.__class__ is Encoded else entry)]

    def _first(self, row: Any) -> Any:
        return self._aggregate.add(row, self._aggregate.create_accumulator())

    def _added(self, value: Any, row: Any) -> Any:
        return self._aggregate.add(row, value)

    def _merged(self, value: Any, other: Any) -> Any:
        return self._aggregate.merge(value, other)

    def _result(self, value: Any) -> Any:
        return self._aggregate.get_result(value)


class ListContents(WindowContents):
    """All rows. Each is an entry of its own, so that one more row writes that row only.

    Args:
        schema: The columns of the rows.
    """

    name = "list"

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def open(self, context: RuntimeContext, scope: str) -> None:
        self._rows = bytes_map(context, RuntimeName(f"_window({scope})"), self._type())
        self._next = bytes_map(context, RuntimeName(f"_window_next({scope})"), Types.LONG())

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
