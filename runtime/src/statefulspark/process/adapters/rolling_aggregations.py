"""The reduce functions behind ``sum``, ``min``, ``max``, ``min_by`` and ``max_by`` of keyed streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.types as pt

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.functions import ReduceFunction
from statefulspark.state.api.names import RuntimeName

__all__ = ["Aggregation", "RollingAggregation"]

Aggregation = Literal["sum", "min", "max", "min_by", "max_by"]


class RollingAggregation(ReduceFunction[Any]):
    """Combines two rows by one of their columns.

    ``sum``, ``min`` and ``max`` change this column of the first row; ``min_by`` and ``max_by`` return one of the rows, the first of equal
    ones. Null is ignored, and NaN is greater than any other number, as in Spark's aggregate functions.

    Args:
        kind: The method.
        schema: The columns of the rows.
        position: The column by name, or by its position as an index of a list.

    Attributes:
        state_name: Name of the state, part of the format of checkpoints. It contains the kind and the column's name, so state is not
            continued as something else.

    Raises:
        InvalidInputError: There is no such column, or its type has no sum or order; names the argument and the remedy.
    """

    def __init__(self, kind: Aggregation, schema: pa.Schema, position: int | str) -> None:
        argument = f"position_to_{kind}"
        self._index = _index(schema, position, argument)
        column = schema.field(self._index)
        _check_type(kind, column, argument)
        self._whole_rows = kind.endswith("_by")
        self._choose = _CHOICES[kind.removesuffix("_by")]
        self.state_name = RuntimeName(f"_{kind}({column.name})")
        if len(self.state_name.encode()) > _STATE_NAME_BYTES_MAX:
            raise InvalidInputError("the column's name is too long for a state's name", field=argument, remedy="Rename the column")

    def reduce(self, value1: Any, value2: Any) -> Any:
        index = self._index
        chosen = self._choose(value1[index], value2[index])
        if self._whole_rows:
            return value2 if chosen is _SECOND else value1
        if chosen is _FIRST:
            return value1
        values = list(value1)
        values[index] = value2[index] if chosen is _SECOND else chosen
        return tuple(values)


_STATE_NAME_BYTES_MAX: Final = 255
_FIRST: Final = object()
_SECOND: Final = object()


def _sum(first: Any, second: Any) -> Any:
    if second is None:
        return _FIRST
    return _SECOND if first is None else first + second


def _min(first: Any, second: Any) -> Any:
    if second is None:
        return _FIRST
    return _SECOND if first is None or _is_less(second, first) else _FIRST


def _max(first: Any, second: Any) -> Any:
    if second is None:
        return _FIRST
    return _SECOND if first is None or _is_less(first, second) else _FIRST


_CHOICES: Final[dict[str, Callable[[Any, Any], Any]]] = {"sum": _sum, "min": _min, "max": _max}


def _is_less(first: Any, second: Any) -> bool:
    """Compare two values; NaN, which is unlike itself, is greater than the others."""
    return bool(first < second) or bool(second != second and first == first)  # noqa: PLR0124


def _index(schema: pa.Schema, position: int | str, argument: str) -> int:
    names = schema.names
    if isinstance(position, bool) or not isinstance(position, int | str):
        raise InvalidInputError(
            f"expected a str or an int, got {type(position).__name__}", field=argument, remedy="Give a column's name or its position"
        )
    if isinstance(position, str):
        if position not in names:
            raise InvalidInputError(
                f"column {position!r} does not exist; the columns are {', '.join(names)}", field=argument, remedy="Correct the name"
            )
        return int(names.index(position))
    if not -len(names) <= position < len(names):
        raise InvalidInputError(f"{position} is not a position in {len(names)} columns", field=argument, remedy="Give the column's name")
    return range(len(names))[position]


def _check_type(kind: Aggregation, column: pa.Field, argument: str) -> None:
    numeric = pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_decimal(column.type)
    if kind == "sum":
        if not numeric and not pt.is_duration(column.type):
            raise InvalidInputError(
                f"column {column.name!r} of type {column.type} has no sum", field=argument, remedy="Name a column of numbers, or cast it"
            )
    elif pt.is_nested(column.type):
        raise InvalidInputError(
            f"values of column {column.name!r} of type {column.type} have no order", field=argument, remedy="Name another column"
        )
