"""Byte sizes in a manifest: `statefulspark.sizes` for pydantic."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from statefulspark.config.base import Expected
from statefulspark.config.problems import refused
from statefulspark.errors import InvalidInputError
from statefulspark.sizes import SIZE_REMEDY, format_size, parse_size

__all__ = ["ByteSize", "between", "format_size", "parse_size"]

_PATTERN = r"^\s*(0|[0-9]+(\.[0-9]+)?\s*([bB]|[bB][yY][tT][eE][sS]|[kKmMgGtTpP][iI]?[bB]?))\s*$"


def _from_manifest(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        if value == 0:
            return 0
        raise refused("a byte size needs a unit", SIZE_REMEDY)
    if not isinstance(value, str):
        raise refused("not a byte size", SIZE_REMEDY)
    try:
        return parse_size(value)
    except InvalidInputError as error:
        raise refused(str(error).split(". ", maxsplit=1)[0], error.remedy or SIZE_REMEDY) from error


ByteSize = Annotated[
    int,
    BeforeValidator(_from_manifest),
    PlainSerializer(format_size, return_type=str),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": _PATTERN, "maxLength": 32, "minimum": 0, "maximum": 0}),
    Expected("a size with its unit, such as 512Mi or 4Gi"),
]
"""A size in a manifest: text outside, bytes inside; the one number that needs no unit is 0."""


def between(smallest: str, largest: str = "1Ti") -> AfterValidator:
    """Return the bounds of a `ByteSize` field, both inclusive, for use in ``Annotated``."""
    low, high = parse_size(smallest), parse_size(largest)

    def check(size_bytes: int) -> int:
        if not low <= size_bytes <= high:
            raise _out_of_bounds(size_bytes, smallest, largest)
        return size_bytes

    return AfterValidator(check)


def _out_of_bounds(size_bytes: int, smallest: str, largest: str) -> PydanticCustomError:
    return refused(f"{format_size(size_bytes)} is outside of {smallest} .. {largest}", f"Use {smallest} .. {largest}")
