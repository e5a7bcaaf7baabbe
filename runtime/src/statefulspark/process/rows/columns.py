"""Converts Arrow columns to Python values, as fast as each type allows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from statefulspark.errors import InvalidInputError
from statefulspark.process.rows.rows import row_class

__all__ = ["check_event_time", "check_representable", "event_time_keys", "event_time_ms", "python_values"]

_FIRST_US: Final = -62_135_596_800_000_000
_LAST_US: Final = 253_402_300_799_999_999
"""The range of ``datetime``, in microseconds since the epoch."""
_UNITS_PER_MS = {"us": 1_000, "ns": 1_000_000}
NULL_TIME = np.iinfo(np.int64).min
"""Stands for a null event time: it sorts first, and no real time is that old."""


def python_values(column: pa.Array, name: str = "") -> list[Any]:
    """Return the column as Python values: rows for structs, dicts for maps, ``datetime`` for timestamps, None for nulls.

    As in PyFlink a ``datetime`` has no zone; where the column is a point in time (Spark's ``timestamp``) it is in UTC.

    Args:
        column: The column.
        name: Its name, for error messages.

    Raises:
        InvalidInputError: Python cannot represent a value, at any depth: a date or a time in UTC outside the years 1 to 9999, or text that is not UTF-8.
    """
    kind = column.type
    if column.null_count == 0 and (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind)):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    try:
        if pt.is_timestamp(kind):
            return _datetimes(column)
        plain = _plain(kind)
        # Arrow would build nested times in the session's zone, where the last ones of Python's range do not exist.
        values = (column if plain == kind else column.cast(plain, safe=False)).to_pylist()
    except UnicodeDecodeError:
        raise _undecodable(name, "text that is not UTF-8", "Correct it with to_binary or decode before key_by") from None
    except (OverflowError, ValueError):
        raise _undecodable(
            name,
            "a date or time outside the years 1 to 9999 in UTC, which Python cannot represent",
            "Filter such rows before key_by, or cast the column to string or bigint",
        ) from None
    convert = _nested(kind)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _undecodable(name: str, found: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(f"has {found}", field=f"column {name!r}" if name else "a column", remedy=remedy)


def _datetimes(column: pa.Array) -> list[Any]:
    # Nanoseconds do not fit a datetime; they are cut, as Spark does.
    micros = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    numbers = micros.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if len(numbers) and not _FIRST_US <= numbers.min() <= numbers.max() <= _LAST_US:
        raise OverflowError  # numpy would make integers of these
    values: list[Any] = numbers.view("datetime64[us]").tolist()
    if column.null_count:
        for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values


@cache
def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type with every timestamp within it in microseconds of UTC and without a zone."""
    if pt.is_timestamp(kind):
        return pa.timestamp("us")
    if pt.is_struct(kind):
        return pa.struct([each.with_type(_plain(each.type)) for each in kind])
    if pt.is_map(kind):
        return pa.map_(kind.key_field.with_type(_plain(kind.key_type)), kind.item_field.with_type(_plain(kind.item_type)))
    if pt.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)), kind.list_size)
    if pt.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def _nested(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the conversion from Arrow's Python form of ``kind`` to ours, or None if they are the same."""
    if pt.is_struct(kind):
        inner = [_nested(kind.field(index).type) for index in range(kind.num_fields)]
        row = row_class(tuple(kind.field(index).name for index in range(kind.num_fields)))
        return lambda value: tuple.__new__(row, [_apply(one, each) for one, each in zip(inner, value.values(), strict=True)])
    if pt.is_map(kind):
        key, item = _nested(kind.key_type), _nested(kind.item_type)
        return lambda pairs: {_apply(key, name): _apply(item, value) for name, value in pairs}
    if _is_list(kind):
        element = _nested(kind.value_type)
        return None if element is None else lambda values: [_apply(element, value) for value in values]
    return None


def check_representable(kind: pa.DataType, name: str) -> None:
    """Refuse a column with a map whose keys Python cannot hash: arrays and maps, at any depth.

    Args:
        kind: The type of the column.
        name: Its name.

    Raises:
        InvalidInputError: Names the column and the remedy.
    """
    if pt.is_map(kind) and not _is_hashable(kind.key_type):
        raise InvalidInputError(
            f"column {name!r} has a map whose keys are or contain arrays or maps ({kind.key_type}), which cannot be keys of a Python dict",
            field="input_schema",
            remedy="Turn the map into an array before key_by: map_entries(column)",
        )
    for inner in _inner(kind):
        check_representable(inner, name)


def _is_hashable(kind: pa.DataType) -> bool:
    return not (_is_list(kind) or pt.is_map(kind)) and all(map(_is_hashable, _inner(kind)))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _inner(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(place).type for place in range(kind.num_fields)] if pt.is_nested(kind) else []


def _apply(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def check_event_time(kind: pa.DataType, name: str) -> None:
    """Refuse an event-time column that is neither a timestamp nor a bigint (milliseconds since the epoch)."""
    if not (pt.is_timestamp(kind) or pt.is_int64(kind)):
        raise InvalidInputError(
            f"column {name!r} has type {kind}",
            field="event_time",
            remedy="Use a timestamp column, or a bigint column of milliseconds since the epoch",
        )


def event_time_keys(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the column in its own unit as int64, nulls as ``NULL_TIME``: what rows are sorted by."""
    numbers = column if pt.is_int64(column.type) else column.cast(pa.int64())
    if numbers.null_count:
        numbers = numbers.fill_null(int(NULL_TIME))
    keys: np.ndarray[Any, np.dtype[np.int64]] = numbers.to_numpy(zero_copy_only=False)
    return keys


def event_time_ms(column: pa.Array) -> list[int | None]:
    """Return milliseconds since the epoch (rounded down), None for nulls."""
    numbers = event_time_keys(column)
    unit = column.type.unit if pt.is_timestamp(column.type) else "ms"
    values: list[int | None] = _to_ms(numbers, unit).tolist()
    if column.null_count:
        for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values


def max_event_time_ms(column: pa.Array) -> int | None:
    """Return the latest event time in milliseconds, or None when the column has none."""
    numbers = column if pt.is_int64(column.type) else column.cast(pa.int64())
    latest = pc.max(numbers).as_py()
    if latest is None:
        return None
    unit = column.type.unit if pt.is_timestamp(column.type) else "ms"
    return int(_to_ms(np.array([latest], dtype=np.int64), unit)[0])


def _to_ms(numbers: np.ndarray[Any, np.dtype[np.int64]], unit: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    if unit == "s":
        return numbers * 1_000
    return numbers // _UNITS_PER_MS[unit] if unit in _UNITS_PER_MS else numbers
