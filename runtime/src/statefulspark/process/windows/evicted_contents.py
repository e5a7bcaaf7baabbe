"""EvictedContents: windows that keep all rows with their times, of which an evictor removes some when they fire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.functions import RuntimeContext
from statefulspark.process.output.output import OutputSchema
from statefulspark.process.rows.row_types import row_type_info
from statefulspark.process.windows.evictors import Evictor, TimestampedValue
from statefulspark.process.windows.window_contents import Emit, ListContents, in_columns
from statefulspark.process.windows.windows import Window
from statefulspark.state.api.functions import AggregateFunction, Function, ReduceFunction
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.types import Types

__all__ = ["AggregatedRows", "EvictedContents", "ReducedRows", "RowsFold"]


class RowsFold(ABC):
    """Makes one value of the rows that an evictor leaves, when the window fires.

    Args:
        function: The user's.
    """

    def __init__(self, function: Function) -> None:
        self.function = function

    def open(self, context: RuntimeContext) -> None:
        """Open the function."""
        self.function.open(context)

    @abstractmethod
    def of(self, rows: Sequence[Any]) -> Any:
        """Return the value of at least one row."""


class ReducedRows(RowsFold):
    """The combination of the rows.

    Args:
        function: Combines two.
        schema: Their columns.
    """

    def __init__(self, function: ReduceFunction[Any], schema: pa.Schema) -> None:
        super().__init__(function)
        self._reduce = function.reduce
        self._schema = schema

    def open(self, context: RuntimeContext) -> None:
        super().open(context)
        self._rows = OutputSchema(self._schema, f"reduce of the step {context.get_task_name()!r}", field="reduce")
        self._type = row_type_info(self._schema)

    def of(self, rows: Sequence[Any]) -> Any:
        combined = rows[0]
        for row in rows[1:]:
            combined = self._type.normalize(in_columns(self._rows, self._schema, self._reduce(combined, row)))
        return combined


class AggregatedRows(RowsFold):
    """The aggregate of the rows."""

    def __init__(self, function: AggregateFunction[Any, Any, Any]) -> None:
        super().__init__(function)
        self._aggregate = function

    def of(self, rows: Sequence[Any]) -> Any:
        accumulator = self._aggregate.create_accumulator()
        for row in rows:
            accumulator = self._aggregate.add(row, accumulator)
        return self._aggregate.get_result(accumulator)


class EvictedContents(ListContents):
    """All rows with their event times.

    Args:
        schema: The columns of the rows.
        evictor: Removes rows.
        fold: None if the window function gets the rows themselves.
    """

    name = "evicted"

    def __init__(self, schema: pa.Schema, evictor: Evictor, fold: RowsFold | None) -> None:
        super().__init__(schema)
        self._evictor = evictor
        self._fold = fold

    def open(self, context: RuntimeContext, scope: str) -> None:
        super().open(context, scope)
        if self._fold is not None:
            self._fold.open(context)

    def close(self) -> None:
        if self._fold is not None:
            self._fold.function.close()

    def fired(self, data: bytes, window: Window, context: Evictor.EvictorContext, emit: Emit) -> list[Any]:
        found = [(key, TimestampedValue(row.row, row.timestamp)) for key, row in self._rows.prefix_items(data)]
        elements = [element for _, element in found]
        self._evictor.evict_before(elements, len(elements), window, context)
        self._check_kept(found, elements)
        emitted: list[Any] = []
        if elements:
            rows = [element.value for element in elements]
            emitted = emit(rows if self._fold is None else [self._fold.of(rows)])
        self._evictor.evict_after(elements, len(elements), window, context)
        self._keep(data, found, self._check_kept(found, elements))
        return emitted

    @staticmethod
    def _check_kept(found: list[tuple[bytes, TimestampedValue]], elements: list[TimestampedValue]) -> set[int]:
        """Return the positions of the elements that the evictor has left."""
        kept = {id(element) for element in elements}
        if len(kept) != len(elements) or not kept <= {id(element) for _, element in found}:
            raise InvalidInputError(
                "the evictor added elements to the window", field="evictor", remedy="Only remove elements from the list"
            )
        return kept

    def _keep(self, data: bytes, found: list[tuple[bytes, TimestampedValue]], kept: set[int]) -> None:
        """Remove what the evictor has removed."""
        if not kept:
            self.clear(data)
            return
        for key, element in found:
            if id(element) not in kept:
                self._rows.remove(key)

    def _keys(self, window: bytes) -> Iterator[bytes]:
        # A scan: most numbers may have been evicted.
        return (key for key, _ in self._rows.prefix_items(window))

    def _type(self) -> TypeInformation:
        return Types.ROW_NAMED(["timestamp", "row"], [Types.LONG(), row_type_info(self._schema)])

    def _entry(self, value: Any, timestamp: int | None) -> Any:
        return timestamp, tuple(value)
