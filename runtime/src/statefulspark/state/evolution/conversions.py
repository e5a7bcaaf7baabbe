"""Converts decoded values from one declared type to the next, for pairs of types that `compatibility.compare` accepts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from statefulspark.errors import IncompatibleFormatError, InvalidInputError
from statefulspark.state.evolution.compatibility import WIDER
from statefulspark.state.row import Row, RowKind
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.composites import ListTypeInfo, MapTypeInfo, PrimitiveArray, RowTypeInfo, TupleTypeInfo

Convert = Callable[[Any], Any]
"""Makes of a value that was decoded as one type a value of another one."""

_INTEGERS: Final = {"BYTE": 8, "SHORT": 16, "INT": 32, "LONG": 64}
_FLOATS: Final = frozenset({"FLOAT", "DOUBLE"})


def converter(stored: TypeInformation, declared: TypeInformation) -> Convert:
    """Return the conversion between two types. None stays None.

    Values that it returns are normalized values of ``declared``. It raises InvalidInputError for a number or text that does not fit a narrower
    type, to which a declaration may only return.

    Raises:
        IncompatibleFormatError: This release does not know how to convert between the types.
    """
    convert = _between(stored, declared)
    return lambda value: None if value is None else convert(value)


def _between(stored: TypeInformation, declared: TypeInformation) -> Convert:
    if isinstance(stored, RowTypeInfo | TupleTypeInfo) and isinstance(declared, RowTypeInfo | TupleTypeInfo):
        return _rows(stored, declared)
    if isinstance(stored, MapTypeInfo) and isinstance(declared, MapTypeInfo):
        return _maps(stored, declared)
    if isinstance(stored, ListTypeInfo | PrimitiveArray) and isinstance(declared, ListTypeInfo | PrimitiveArray):
        return _lists(stored, declared)
    if stored.to_json() == declared.to_json():
        return lambda value: value
    if declared.name in WIDER.get(stored.name, ()):
        return float if declared.name in _FLOATS else lambda value: value
    if stored.name in WIDER.get(declared.name, ()):
        return _narrowed(stored, declared)
    raise IncompatibleFormatError(
        "the state was migrated in a way that this release does not know. Use the release that wrote it, or a later one",
        path="schemas of a state",
        expected=declared.name,
        found=stored.name,
    )


def _narrowed(stored: TypeInformation, declared: TypeInformation) -> Convert:
    def narrow(value: Any) -> Any:
        if declared.name == "CHAR":
            fits = len(value) == 1
        elif declared.name == "FLOAT":
            # Rounded like every value of the type; only a number that would become infinite does not fit.
            narrowed = declared.normalize(value)
            fits = math.isfinite(narrowed) or not math.isfinite(value)
            value = narrowed
        else:
            fits = math.isfinite(value) and value == int(value) if isinstance(value, float) else True
            value = int(value) if fits else value
            fits = fits and _fits_bits(value, _INTEGERS[declared.name])
        if not fits:
            raise InvalidInputError(
                f"a value of type {stored.name} does not fit {declared.name}, to which the declaration returned",
                remedy=f"Declare {stored.name}, or restore a savepoint from before the upgrade",
            )
        return value

    return narrow


def _fits_bits(value: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _lists(stored: ListTypeInfo | PrimitiveArray, declared: ListTypeInfo | PrimitiveArray) -> Convert:
    if isinstance(declared, PrimitiveArray) and isinstance(stored, ListTypeInfo):
        raise IncompatibleFormatError("a list does not become an array of numbers", path="schemas of a state")
    convert = converter(stored.element, declared.element)
    from_bytes, to_bytes = _is_bytes(stored), _is_bytes(declared)

    def elements(value: Any) -> Any:
        # An array of BYTE is read as bytes, whose elements have no sign.
        numbers = [each - 256 if each > 127 else each for each in value] if from_bytes else value
        converted = [convert(each) for each in numbers]
        return bytes(each & 0xFF for each in converted) if to_bytes else converted

    return elements


def _is_bytes(type_: ListTypeInfo | PrimitiveArray) -> bool:
    return isinstance(type_, PrimitiveArray) and type_.element.name == "BYTE"


def _maps(stored: MapTypeInfo, declared: MapTypeInfo) -> Convert:
    key, each = converter(stored.key, declared.key), converter(stored.value, declared.value)

    def entries(value: Any) -> Any:
        converted = {key(name): each(part) for name, part in value.items()}
        if len(converted) != len(value):
            raise InvalidInputError(
                f"two keys of type {stored.key.name} become the same {declared.key.name}, to which the declaration returned",
                remedy=f"Declare {stored.key.name}, or restore a savepoint from before the upgrade",
            )
        return converted

    return entries


def _rows(stored: RowTypeInfo | TupleTypeInfo, declared: RowTypeInfo | TupleTypeInfo) -> Convert:
    old, new = stored.get_field_types(), declared.get_field_types()
    before, after = _names(stored), _names(declared)
    sources: list[tuple[int, Convert] | None] = []
    if before is not None and after is not None:
        for name, type_ in zip(after, new, strict=True):
            index = before.index(name) if name in before else -1
            sources.append((index, converter(old[index], type_)) if index >= 0 else None)
    elif len(old) == len(new):
        sources = [(index, converter(*pair)) for index, pair in enumerate(zip(old, new, strict=True))]
    else:
        raise IncompatibleFormatError("rows by position have different numbers of fields", path="schemas of a state")

    def convert(value: Any) -> Any:
        was = list(value)
        values = [_default(declared, index) if source is None else source[1](was[source[0]]) for index, source in enumerate(sources)]
        return tuple(values) if isinstance(declared, TupleTypeInfo) else _row(values, after, value)

    return convert


def _names(type_: RowTypeInfo | TupleTypeInfo) -> list[str] | None:
    return list(type_.to_json()["names"]) if "names" in type_.to_json() else None


def _default(type_: RowTypeInfo | TupleTypeInfo, index: int) -> Any:
    return type_.default_of(type_.get_field_names()[index]) if isinstance(type_, RowTypeInfo) else None


def _row(values: Sequence[Any], names: Sequence[str] | None, stored: Any) -> Row:
    row = Row(*values)
    if names is not None:
        row.set_field_names(names)
    row.set_row_kind(stored.get_row_kind() if isinstance(stored, Row) else RowKind.INSERT)
    return row
