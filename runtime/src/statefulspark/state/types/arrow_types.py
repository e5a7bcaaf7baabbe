"""The Arrow type of each type of state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from statefulspark.errors import IncompatibleFormatError

INSTANT: Final = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
"""Nanoseconds of any year: no timestamp of Arrow has both."""
_DIGITS: Final = 38
_SCALE: Final = 18
"""As Flink and Spark take a decimal of which nothing is declared."""

_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "CHAR": pa.string(),
    "SQL_DATE": pa.date32(),
    "SQL_TIME": pa.time64("us"),
    "SQL_TIMESTAMP": pa.timestamp("us"),
    "INSTANT": INSTANT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversions:
    """Forms of values that have no single Arrow type.

    Attributes:
        unpickle: Pickled objects as text (``repr``) and not as bytes. Runs code that the bytes name.
        decimals_as_text: BIG_INT and BIG_DEC as text, which holds any number of digits.
    """

    unpickle: bool = False
    decimals_as_text: bool = False


AS_DECLARED: Final = Conversions()
"""Pickled objects as bytes, numbers of any length as decimals."""


def arrow_type(description: Mapping[str, Any], conversions: Conversions) -> pa.DataType:
    """Return the Arrow type of a type of state.

    >>> arrow_type({"type": "LIST", "element": {"type": "LONG"}}, AS_DECLARED)
    ListType(list<element: int64>)

    Args:
        description: As `TypeInformation.to_json` makes it.
        conversions: Of types that have no one Arrow type.

    Raises:
        IncompatibleFormatError: The type is not known to this release.
    """
    name = description.get("type")
    if name in _SCALARS:
        return _SCALARS[str(name)]
    match name:
        case "BIG_INT":
            return pa.string() if conversions.decimals_as_text else pa.decimal128(_DIGITS, 0)
        case "BIG_DEC":
            return pa.string() if conversions.decimals_as_text else pa.decimal128(_DIGITS, _SCALE)
        case "PICKLED_BYTE_ARRAY":
            return pa.string() if conversions.unpickle else pa.binary()
        case "PRIMITIVE_ARRAY" if description["element"]["type"] == "BYTE":
            return pa.binary()
        case "LIST" | "BASIC_ARRAY" | "OBJECT_ARRAY" | "PRIMITIVE_ARRAY":
            return pa.list_(pa.field("element", arrow_type(description["element"], conversions)))
        case "MAP":
            return pa.map_(arrow_type(description["key"], conversions), arrow_type(description["value"], conversions))
        case "TUPLE" | "ROW":
            names = field_names(description)
            types = [arrow_type(each, conversions) for each in description["fields"]]
            return pa.struct(list(zip(names, types, strict=True)))
        case _:
            pass
    raise IncompatibleFormatError("unknown type of state", path="type description", found=str(name))


def field_names(description: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields of a row or tuple; those without names are ``f0``, ``f1`` and so on, as in Flink."""
    return list(description.get("names") or (f"f{index}" for index in range(len(description["fields"]))))
