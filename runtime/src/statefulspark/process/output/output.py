"""Converts the rows that users emit to record batches of a schema, or raises an error that names the mismatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.process.output.output_types import MisfitError, ValueType
from statefulspark.state.row import Row, RowKind, field_names

__all__ = ["OutputSchema"]


class OutputSchema:
    """Converts Python rows to one schema.

    Args:
        schema: what comes out.
        giver: who gives the rows, for error messages, such as ``the step 'turnaround'``.
        field: what the schema is called where the user wrote it.
    """

    def __init__(self, schema: pa.Schema, giver: str, *, field: str = "output_type") -> None:
        self._schema = schema
        self._giver = giver
        self._field = field
        self._names: tuple[str, ...] = tuple(schema.names)
        self._types = [ValueType(field.type) for field in schema]
        only = schema.field(0).type if len(schema) == 1 else None
        self._list_is_value = only is not None and (pt.is_list(only) or pt.is_large_list(only) or pt.is_fixed_size_list(only))
        self._dict_is_value = only is not None and (pt.is_map(only) or pt.is_struct(only))

    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return the rows as one record batch.

        Raises:
            InvalidInputError: a row does not fit the schema; names the column, the expected type and the Python type found.
        """
        if not rows:
            return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in self._schema.types], schema=self._schema)
        tuples = rows if set(map(type, rows)) == {tuple} else [self.in_column_order(row) for row in rows]
        try:
            columns = list(zip(*tuples, strict=True))
        except ValueError:
            columns = []
        if len(columns) != len(self._names):
            self._refuse_arity(tuples)
        arrays = [self._column(*each) for each in zip(range(len(columns)), columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, index: int, values: Sequence[Any]) -> pa.Array:
        field = self._schema.field(index)
        try:
            array = self._types[index].array(values)
        except MisfitError as misfit:
            raise InvalidInputError(
                f"{self._giver} produced {misfit.found} for column {field.name + misfit.path!r} of type {misfit.expected}",
                field=self._field,
                remedy=misfit.remedy or "Emit a value of that type, or change the column's type",
            ) from misfit.__cause__
        if isinstance(array, pa.ChunkedArray):
            # Arrow splits values that one array cannot hold.
            raise InvalidInputError(
                f"{self._giver} produced more than 2 GiB at once for column {field.name!r} of type {field.type}",
                field=self._field,
                remedy="Emit fewer or smaller values at once",
            )
        if array.null_count and not field.nullable:
            raise InvalidInputError(
                f"{self._giver} produced None for column {field.name!r}, which is not nullable ({field.type})",
                field=self._field,
                remedy="Give a value, or make the column nullable",
            )
        return array

    def in_column_order(self, row: Any) -> tuple[Any, ...]:
        """Return the values of one row in column order; their number and types are not checked.

        Raises:
            InvalidInputError: the row has other columns by name, or is no row.
        """
        if isinstance(row, Row):
            if (kind := row.get_row_kind()) is not RowKind.INSERT:
                raise InvalidInputError(
                    f"{self._giver} produced a Row of kind {kind.name}; a DataFrame has no row kinds",
                    field=self._field,
                    remedy="Emit the kind as a column, for example str(row.get_row_kind())",
                )
            return tuple(row) if field_names(row) is None else self._by_name(row.as_dict())
        if isinstance(row, tuple):
            # Named tuples and input rows have _fields, pyspark's rows have __fields__ when they are named.
            names = getattr(row, "_fields", None) or getattr(row, "__fields__", None)
            return tuple(row) if names is None else self._by_name(dict(zip(names, row, strict=True)))
        if isinstance(row, Mapping) and not (self._dict_is_value and self._names[0] not in row):
            return self._by_name(row)
        if isinstance(row, list) and not self._list_is_value:
            return tuple(row)
        if len(self._names) == 1:
            return (row,)
        raise InvalidInputError(
            f"{self._giver} produced {type_name(type(row))} as a row of {len(self._names)} columns",
            field=self._field,
            remedy="Emit tuples, Rows or dicts; a function that returns instead of yielding returns a list of rows",
        )

    def _by_name(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            values = tuple(row[name] for name in self._names)
        except KeyError as error:
            raise InvalidInputError(
                f"{self._giver} produced a row without the column {error.args[0]!r}",
                field=self._field,
                remedy="Set every column by name (None for null), or emit a plain tuple to match columns by position",
            ) from None
        if len(row) != len(values):
            extra = ", ".join(repr(name) for name in row if name not in self._names)
            raise InvalidInputError(
                f"{self._giver} produced a row with unknown columns {extra}",
                field=self._field,
                remedy=f"The schema has: {', '.join(self._names)}",
            )
        return values

    def _refuse_arity(self, rows: Sequence[tuple[Any, ...]]) -> None:
        found = next((len(row) for row in rows if len(row) != len(self._names)), 0)
        raise InvalidInputError(
            f"{self._giver} produced a row of {found} values for {len(self._names)} columns ({', '.join(self._names)})",
            field=self._field,
            remedy="Emit one value per column; a function that returns instead of yielding returns a list of rows",
        )
