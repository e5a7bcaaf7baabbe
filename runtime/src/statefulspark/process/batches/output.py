"""ArrowOutput: collects the record batches and tables that a batch function yields."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.process.batches.conversions import Misfit, cast_safely
from statefulspark.process.output.pieces import pieces

__all__ = ["ArrowOutput"]


class ArrowOutput:
    """Checks what is yielded, and joins and splits it to record batches of a good size. Used by one thread.

    Args:
        uid: The step.
        schema: Of the record batches.
        rows_max: Rows per record batch.
        bytes_max: Bytes per record batch; one row may be larger.
    """

    def __init__(self, uid: str, schema: pa.Schema, *, rows_max: int, bytes_max: int) -> None:
        self._uid = uid
        self._schema = schema
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self.clear()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def clear(self) -> None:
        """Forget what was yielded."""
        self._parts: deque[pa.RecordBatch] = deque()
        self._rows = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """True if `take` should be called now."""
        return self._rows >= self._rows_max or self._bytes >= self._bytes_max

    def add(self, produced: object, method: str) -> None:
        """Take a record batch or a table.

        Raises:
            InvalidInputError: It is neither, or does not fit the schema; names the step and the column.
        """
        if isinstance(produced, pa.Table):
            batches = produced.to_batches()
        elif isinstance(produced, pa.RecordBatch):
            batches = [produced]
        else:
            raise InvalidInputError(
                f"{method} of the step {self._uid!r} yielded {type_name(type(produced))}",
                field=method,
                remedy="Yield a pyarrow RecordBatch or Table of the output schema; a DataFrame of pandas by pa.RecordBatch.from_pandas(df)",
            )
        for batch in batches:
            fitted = self._fitted(batch)
            for first in range(0, fitted.num_rows, self._rows_max):
                for part in pieces(fitted.slice(first, self._rows_max), self._bytes_max):
                    self._parts.append(part)
                    self._rows += part.num_rows
                    self._bytes += part.nbytes

    def take(self) -> pa.RecordBatch:
        """Return the first rows, at most a full record batch, and forget them."""
        taken = [self._parts.popleft()]
        rows, size_bytes = taken[0].num_rows, taken[0].nbytes
        while self._parts and rows + self._parts[0].num_rows <= self._rows_max and size_bytes + self._parts[0].nbytes <= self._bytes_max:
            part = self._parts.popleft()
            taken.append(part)
            rows, size_bytes = rows + part.num_rows, size_bytes + part.nbytes
        self._rows, self._bytes = self._rows - rows, self._bytes - size_bytes
        return taken[0] if len(taken) == 1 else pa.concat_batches(taken)

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        if sorted(names) != sorted(self._schema.names):
            raise InvalidInputError(
                f"the step {self._uid!r} produced the columns {', '.join(names)}, and its output has {', '.join(self._schema.names)}",
                field="output_type",
                remedy="Yield exactly these columns: ctx.output_schema() has names and types",
            )
        return pa.RecordBatch.from_arrays([self._column(field, batch.column(field.name)) for field in self._schema], schema=self._schema)

    def _column(self, field: pa.Field, array: pa.Array) -> pa.Array:
        try:
            fitted = cast_safely(array, field.type)
        except Misfit as error:
            raise InvalidInputError(
                f"the step {self._uid!r} produced {error} in column {field.name!r}",
                field="output_type",
                remedy="Cast the column, or change its type",
            ) from error
        if fitted.null_count and not field.nullable:
            raise InvalidInputError(
                f"the step {self._uid!r} produced null for column {field.name!r}, which is not nullable ({field.type})",
                field="output_type",
                remedy="Give a value, or make the column nullable",
            )
        return fitted
