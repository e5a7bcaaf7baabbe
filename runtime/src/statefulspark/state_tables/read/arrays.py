"""Decodes payloads of state types into Arrow arrays, many at once and without a Python object for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.state.types.arrow_types import INSTANT, Conversions, arrow_type, field_names
from statefulspark.state.types.types import type_from_json
from statefulspark.state_tables.read.payloads import Flags, Integers, Payloads

_NUMBERS: Final[Mapping[str, str]] = {
    "BYTE": "i1",
    "SHORT": "i2",
    "INT": "i4",
    "LONG": "i8",
    "FLOAT": "f4",
    "DOUBLE": "f8",
    "SQL_DATE": "i4",
    "SQL_TIME": "i8",
    "SQL_TIMESTAMP": "i8",
}
"""Types of fixed width, with numpy's code for their number."""
_MICROS_PER_DAY: Final = 86_400_000_000
_ROW_KINDS: Final = (1, 2, 3)
_BYTES_MAX: Final = (1 << 31) - 1


def array_of(description: Mapping[str, Any], payloads: Payloads, conversions: Conversions) -> pa.Array:
    """Decode payloads of one type.

    Args:
        description: The type, as `TypeInformation.to_json` makes it.
        payloads: A row each.
        conversions: Of types that have no one Arrow type.

    Returns:
        An array of `arrow_type`, null where a row is None.

    Raises:
        ValueError: Bytes do not fit the type.
        InvalidInputError: A value does not fit the Arrow type.
        IncompatibleFormatError: The type is not known to this release.
    """
    name = str(description.get("type"))
    if name in _NUMBERS:
        return _numbers(name, payloads, arrow_type(description, conversions))
    match name:
        case "BOOLEAN":
            return _booleans(payloads)
        case "STRING" | "CHAR":
            return _texts(payloads)
        case "INSTANT":
            payloads.check_width(12)
            parts = [pa.array(payloads.numbers("i8")), pa.array(payloads.without(8).numbers("i4"))]
            return _structs(parts, list(INSTANT), payloads.valid)
        case "PRIMITIVE_ARRAY":
            return _primitive_arrays(description, payloads, conversions)
        case "LIST" | "BASIC_ARRAY" | "OBJECT_ARRAY":
            counts, items = payloads.items()
            return _lists(counts, array_of(description["element"], items, conversions), payloads.valid)
        case "MAP":
            return _maps(description, payloads, conversions)
        case "TUPLE" | "ROW":
            return _rows(description, payloads, conversions)
        case _:
            pass
    return _one_by_one(name, description, payloads, conversions)


def field_arrays(description: Mapping[str, Any], payloads: Payloads, conversions: Conversions) -> list[pa.Array]:
    """Decode the fields of rows or tuples, an array each; errors as of `array_of`."""
    fields, rest = payloads.fields(len(description["fields"]))
    if description["type"] == "TUPLE":
        if bool(np.any(rest)):
            raise ValueError("trailing bytes")
    elif bool(np.any(rest)):
        # A row of another kind than INSERT has one more byte.
        kinds = Payloads(payloads.data, payloads.ends - rest, payloads.ends, rest > 0)
        kinds.check_width(1)
        if not bool(np.isin(kinds.numbers("u1")[kinds.valid], _ROW_KINDS).all()):
            raise ValueError("unknown kind of row")
    return [array_of(each, field, conversions) for each, field in zip(description["fields"], fields, strict=True)]


def binary_array(payloads: Payloads) -> pa.Array:
    """Return the payloads as they are.

    Raises:
        InvalidInputError: They are larger than Arrow takes in one array.
    """
    data, offsets = payloads.compact()
    if offsets[-1] > _BYTES_MAX:
        raise InvalidInputError("a value is larger than 2 GiB, which no column of Arrow holds", field="state", remedy="Read other keys")
    bitmap = pa.array(payloads.valid).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(payloads), [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])


def _numbers(name: str, payloads: Payloads, type_: pa.DataType) -> pa.Array:
    code = _NUMBERS[name]
    payloads.check_width(np.dtype(code).itemsize)
    numbers = payloads.numbers(code)
    if name == "SQL_TIME" and bool(np.any((numbers < 0) | (numbers >= _MICROS_PER_DAY))):
        raise ValueError("not within a day")
    return pa.array(numbers, mask=~payloads.valid).view(type_)


def _booleans(payloads: Payloads) -> pa.Array:
    payloads.check_width(1)
    numbers = payloads.numbers("u1")
    if bool(np.any(numbers > 1)):
        raise ValueError("0 or 1 expected")
    return pa.array(numbers.astype(np.bool_), mask=~payloads.valid)


def _texts(payloads: Payloads) -> pa.Array:
    try:
        return binary_array(payloads).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise ValueError("not UTF-8") from error


def _primitive_arrays(description: Mapping[str, Any], payloads: Payloads, conversions: Conversions) -> pa.Array:
    element = description["element"]
    if element["type"] == "BYTE":
        return binary_array(payloads)
    width = 1 if element["type"] == "BOOLEAN" else np.dtype(_NUMBERS[element["type"]]).itemsize
    lengths = payloads.lengths()
    if bool(np.any(lengths % width)):
        raise ValueError("a part of a number is left over")
    data, _ = payloads.compact()
    starts = np.arange(0, len(data), width, dtype=np.int64)
    items = Payloads(data, starts, starts + width, np.ones(len(starts), np.bool_))
    return _lists(lengths // width, array_of(element, items, conversions), payloads.valid)


def _lists(counts: Integers, elements: pa.Array, valid: Flags) -> pa.Array:
    offsets = pa.array(np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))), pa.int32())
    return pa.ListArray.from_arrays(offsets, elements, type=pa.list_(pa.field("element", elements.type)), mask=pa.array(~valid))


def _maps(description: Mapping[str, Any], payloads: Payloads, conversions: Conversions) -> pa.Array:
    counts, items = payloads.items(2)
    keys = Payloads(items.data, items.starts[::2], items.ends[::2], items.valid[::2])
    values = Payloads(items.data, items.starts[1::2], items.ends[1::2], items.valid[1::2])
    if not bool(keys.valid.all()):
        raise InvalidInputError(
            "a map within a value has the key None, which no table holds", field="state", remedy="Show it with `statefulspark state`"
        )
    arrays = [array_of(description[part], each, conversions) for part, each in (("key", keys), ("value", values))]
    offsets = pa.array(np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))), pa.int32())
    type_ = pa.map_(arrays[0].type, arrays[1].type)
    entries = pa.MapArray.from_arrays(offsets, *arrays, type=type_)
    if bool(payloads.valid.all()):
        return entries
    bitmap = pa.array(payloads.valid).buffers()[1]
    parts = pa.StructArray.from_arrays(arrays, fields=[type_.key_field, type_.item_field])
    return pa.Array.from_buffers(type_, len(payloads), [bitmap, entries.buffers()[1]], children=[parts])


def _rows(description: Mapping[str, Any], payloads: Payloads, conversions: Conversions) -> pa.Array:
    arrays = field_arrays(description, payloads, conversions)
    fields = [pa.field(name, array.type) for name, array in zip(field_names(description), arrays, strict=True)]
    return _structs(arrays, fields, payloads.valid)


def _structs(arrays: Sequence[pa.Array], fields: list[pa.Field], valid: Flags) -> pa.Array:
    if not fields:
        return pa.array([{} if each else None for each in valid.tolist()], pa.struct([]))
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~valid))


def _one_by_one(name: str, description: Mapping[str, Any], payloads: Payloads, conversions: Conversions) -> pa.Array:
    """Decode types of which every value becomes a Python object first."""
    if name == "PICKLED_BYTE_ARRAY" and not conversions.unpickle:
        return binary_array(payloads)
    decode = type_from_json(description).decode
    shown: Callable[[Any], Any] = repr if name == "PICKLED_BYTE_ARRAY" else str if conversions.decimals_as_text else Decimal
    values = [None if payload is None else shown(decode(payload)) for payload in payloads.to_list()]
    return decimal_array(values, arrow_type(description, conversions))


def decimal_array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Return decimals, or texts, as an array.

    Raises:
        InvalidInputError: One has more digits than the type, or is no number.
    """
    try:
        return pa.array(values, type_)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"a number does not fit {type_}", field="state", remedy="Read numbers of any length as text: decimals_as_text=True"
        ) from error
