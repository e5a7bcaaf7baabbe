"""Casts of arrays that users give, which lose nothing."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["Misfit", "cast_safely"]


class Misfit(Exception):  # noqa: N818  said of values, as in output_types
    """An array does not fit a type; the text says what was found."""


def cast_safely(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the array as another type of the same family.

    Raises:
        Misfit: The type is of another family, or a value does not fit.
    """
    if array.type.equals(kind):
        return array
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not (pt.is_null(array.type) or _same_family(array.type, kind)):
        raise Misfit(f"values of type {array.type} for {kind}")
    try:
        return array.cast(kind, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Misfit(f"values of type {array.type} that {kind} cannot hold") from error


def _same_family(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pt.is_floating(wanted):
        return bool(pt.is_floating(given) or pt.is_integer(given))
    if pt.is_timestamp(wanted):
        # Whether a time has a zone is not for a cast to decide.
        return bool(pt.is_timestamp(given) and (given.tz is None) == (wanted.tz is None))
    families = (pt.is_integer, pt.is_decimal, _is_text, _is_bytes, pt.is_date, pt.is_time, pt.is_duration, pt.is_nested)
    return any(family(given) and family(wanted) for family in families)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))
