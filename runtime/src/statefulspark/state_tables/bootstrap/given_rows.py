"""The rows that a caller gives for a state, and how their entries get sorted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, Union

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.state_tables.bootstrap.state_rows import ROWS_MAX, ArrowStream, StateRows
from statefulspark.state_tables.write.sorted_entries import SortedEntries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows: TypeAlias = Union[ArrowStream, "DataFrame"]
"""Rows that a caller may pass: any Arrow stream, or a DataFrame of Spark."""
_NUMBER_BYTES: Final = 8
_NO_NUMBER: Final = (1 << 64) - 1
"""In place of the number of a row of Spark, whose rows have no order."""


class GivenRows(Protocol):
    """Rows for one state. Nothing is read before `add_to`.

    Attributes:
        schema: Of the rows, in Arrow's types.
    """

    @property
    def schema(self) -> pa.Schema:
        """See Attributes."""

    def add_to(self, added: SortedEntries, rows: StateRows) -> None:
        """Encode all rows and add the entries, each value after the number of its row.

        Raises:
            InvalidInputError: A row does not fit; names its column, never its value.
            UnavailableError: The local disk is full or fails.
        """


class ArrowRows:
    """The rows of a reader, which are counted from 0; `GivenRows` says what the methods do."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader
        self.schema: pa.Schema = reader.schema

    def add_to(self, added: SortedEntries, rows: StateRows) -> None:
        row = 0
        while (whole := self._next_batch(row)) is not None:
            for start in range(0, whole.num_rows, ROWS_MAX):
                batch = whole.slice(start, ROWS_MAX)
                for number, (key, value) in enumerate(rows.entries(batch, row), row):
                    added.add(key, numbered(value, number))
                row += batch.num_rows

    def _next_batch(self, row: int) -> pa.RecordBatch | None:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            return None
        except InvalidInputError:
            raise
        except (pa.ArrowException, ValueError, TypeError):
            raise InvalidInputError("cannot be read", field=f"rows from {row}", remedy="Pass a sound pyarrow Table") from None


def is_spark_frame(rows: object) -> bool:
    """True for a DataFrame of Spark, also of Spark Connect. Does not import pyspark, which takes seconds."""
    spark = sys.modules.get("pyspark.sql")
    return spark is not None and isinstance(rows, spark.DataFrame)


def numbered(value: bytes, row: int | None) -> bytes:
    """Return a stored value after the number of its row, None if it has none."""
    return (_NO_NUMBER if row is None else row).to_bytes(_NUMBER_BYTES, "big") + value


def without_number(value: bytes) -> bytes:
    """Return the stored value."""
    return value[_NUMBER_BYTES:]


def same_key(first: bytes, second: bytes) -> InvalidInputError:
    """Return the error for two numbered values of one key."""
    numbers = sorted(int.from_bytes(value[:_NUMBER_BYTES], "big") for value in (first, second))
    which = "two rows have" if numbers[1] == _NO_NUMBER else f"rows {numbers[0]} and {numbers[1]} have"
    return InvalidInputError(f"{which} the same key", field="rows", remedy="Leave one of them out")
