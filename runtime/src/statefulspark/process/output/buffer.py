"""OutputBuffer: collects the rows that a function emits until they fill a record batch, by number or by size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.output_tag import tag_of, undeclared
from statefulspark.process.output.output import OutputSchema
from statefulspark.process.rows.rows import Row

__all__ = ["OutputBuffer"]

_VALUE_BYTES: Final = 16
"""Estimated size of a value that has no length."""
_UTF8_BYTES_MAX: Final = 4


class OutputBuffer:
    """Collects output rows. Used by one thread.

    Args:
        schema: Schema of the record batch.
        giver: Who gives the rows, for error messages.
        rows_max: Rows per record batch.
        bytes_max: Estimated bytes per record batch; it is passed by at most one row.
        field: What the schema is called in error messages.

    Attributes:
        add: Takes a row and returns whether `take` should be called now.
    """

    __slots__ = ("_bytes", "_bytes_max", "_columns", "_fixed_bytes", "_giver", "_rows", "_rows_max", "_schema", "_varying", "add")

    def __init__(self, schema: pa.Schema, giver: str, *, rows_max: int, bytes_max: int, field: str = "output_type") -> None:
        self._giver = giver
        self._schema = OutputSchema(schema, giver, field=field)
        self._rows: list[Any] = []
        self._rows_max = rows_max
        self._bytes = 0
        self._bytes_max = bytes_max
        self._columns = len(schema.types)
        # The others take as much as any small value.
        self._varying = [column for column, kind in enumerate(schema.types) if not _is_small(kind)]
        self._fixed_bytes = _VALUE_BYTES * (1 + self._columns)
        self.add: Callable[[Any], bool] = self._measured if self._varying else self._counted

    def __bool__(self) -> bool:
        return bool(self._rows)

    def take(self) -> pa.RecordBatch:
        """Return the rows as one record batch and clear the buffer.

        Raises:
            InvalidInputError: A row does not fit the schema, or was yielded with a tag.
        """
        try:
            batch = self._schema.batch(self._rows)
        except InvalidInputError as error:
            # No schema fits a tag, so that only rows that have failed need to be searched for one.
            if (tag := next(filter(None, map(tag_of, self._rows)), None)) is not None:
                raise undeclared(self._giver, tag) from error
            raise
        self.clear()
        return batch

    def clear(self) -> None:
        """Forget the rows."""
        self._rows.clear()
        self._bytes = 0

    def _counted(self, row: Any) -> bool:
        rows = self._rows
        rows.append(row)
        return len(rows) >= self._rows_max

    def _measured(self, row: Any) -> bool:
        rows = self._rows
        rows.append(row)
        if row.__class__ is tuple and len(row) == self._columns:
            size_bytes = self._fixed_bytes
            for column in self._varying:
                value = row[column]
                size_bytes += len(value) if value.__class__ is str and value.isascii() else _size(value)
        else:
            size_bytes = _size(row)
        self._bytes += size_bytes
        return self._bytes >= self._bytes_max or len(rows) >= self._rows_max


def _is_small(kind: pa.DataType) -> bool:
    return bool(pt.is_primitive(kind) or pt.is_null(kind) or pt.is_decimal(kind) or pt.is_boolean(kind))


def _row_size(row: tuple[Any, ...]) -> int:
    """Estimate the bytes of a row; what most rows are made of takes no further call."""
    size_bytes = _VALUE_BYTES
    for value in row:
        kind = value.__class__
        if kind is int or kind is float or value is None:
            size_bytes += _VALUE_BYTES
        elif kind is str and value.isascii():
            size_bytes += _VALUE_BYTES + len(value)
        else:
            size_bytes += _size(value)
    return size_bytes


def _size(value: Any) -> int:
    """Estimate the bytes of a row or of a value in it, rather too high than too low."""
    kind = value.__class__
    if kind is str:
        return _VALUE_BYTES + (len(value) if value.isascii() else _UTF8_BYTES_MAX * len(value))
    if kind is int or kind is float or value is None:
        return _VALUE_BYTES
    if kind is tuple:
        return _row_size(value)
    if isinstance(value, tuple | list):
        return _VALUE_BYTES + sum(map(_size, value))
    if isinstance(value, bytes | bytearray):
        return _VALUE_BYTES + len(value)
    if isinstance(value, Row) or (isinstance(value, np.ndarray) and value.dtype == object):
        return _VALUE_BYTES + sum(map(_size, value))
    if isinstance(value, memoryview | np.ndarray):
        return _VALUE_BYTES + int(value.nbytes)
    if isinstance(value, Mapping):
        return _VALUE_BYTES + sum(map(_size, value.keys())) + sum(map(_size, value.values()))
    if isinstance(value, str):
        return _VALUE_BYTES + _UTF8_BYTES_MAX * len(value)
    return _VALUE_BYTES
