"""Random types, their values, and what they may become: the oracle converts plain values by how a successor was made, without looking at types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from math import isfinite
from typing import Any

from hypothesis import strategies as st

from statefulspark.state.row import Row
from statefulspark.state.types.composites import ListTypeInfo, MapTypeInfo, PrimitiveArray, RowTypeInfo, TupleTypeInfo
from statefulspark.state.types.types import TypeInformation, Types

Convert = Callable[[Any], Any]


class UnfitError(Exception):
    """A value does not fit a narrower type."""


@dataclass(frozen=True)
class Successor:
    """A type that may follow another one.

    Attributes:
        convert: What becomes of a value, None included.
        back: What becomes of a value of ``type`` when the declaration returns; None if it may not.
    """

    type: TypeInformation
    convert: Convert
    back: Convert | None


SCALARS: Mapping[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    "BYTE": (Types.BYTE(), st.integers(-(1 << 7), (1 << 7) - 1)),
    "SHORT": (Types.SHORT(), st.integers(-(1 << 15), (1 << 15) - 1)),
    "INT": (Types.INT(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "LONG": (Types.LONG(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "BIG_INT": (Types.BIG_INT(), st.integers()),
    "FLOAT": (Types.FLOAT(), st.floats(width=32)),
    "DOUBLE": (Types.DOUBLE(), st.floats()),
    "CHAR": (Types.CHAR(), st.characters(exclude_categories=["Cs"])),
    "STRING": (Types.STRING(), st.text(max_size=3)),
    "BOOLEAN": (Types.BOOLEAN(), st.booleans()),
    "SQL_DATE": (Types.SQL_DATE(), st.dates(date(1960, 1, 1), date(2030, 1, 1))),
}
WIDENINGS = (
    "BYTE SHORT", "BYTE INT", "BYTE LONG", "BYTE BIG_INT", "BYTE FLOAT", "BYTE DOUBLE", "SHORT INT", "SHORT LONG", "SHORT BIG_INT", "SHORT FLOAT",
    "SHORT DOUBLE", "INT LONG", "INT BIG_INT", "INT DOUBLE", "LONG BIG_INT", "FLOAT DOUBLE", "CHAR STRING",
)  # fmt: skip
_BITS = {"BYTE": 8, "SHORT": 16, "INT": 32, "LONG": 64}
_LISTS: dict[str, Callable[[TypeInformation], TypeInformation]] = {
    "LIST": Types.LIST,
    "BASIC_ARRAY": Types.BASIC_ARRAY,
    "OBJECT_ARRAY": Types.OBJECT_ARRAY,
}
NAMES = ("a", "b", "c", "d")


def types(scalars: tuple[str, ...] = tuple(SCALARS)) -> st.SearchStrategy[TypeInformation]:
    """Return random types."""
    scalar = st.sampled_from(scalars).map(lambda name: SCALARS[name][0])
    arrays = st.sampled_from(["BYTE", "SHORT", "INT", "DOUBLE"]).map(lambda name: Types.PRIMITIVE_ARRAY(SCALARS[name][0]))

    def wrap(inner: st.SearchStrategy[TypeInformation]) -> st.SearchStrategy[TypeInformation]:
        fields = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            st.tuples(st.sampled_from(list(_LISTS)), inner).map(lambda drawn: _LISTS[drawn[0]](drawn[1])),
            fields.map(Types.TUPLE),
            fields.map(Types.ROW),
            fields.map(lambda types: Types.ROW_NAMED(NAMES[: len(types)], types)),
            inner.map(lambda value: Types.MAP(Types.SHORT(), value)),
        )

    return st.recursive(scalar | arrays, wrap, max_leaves=4)


def values(type_: TypeInformation) -> st.SearchStrategy[Any]:
    """Return values of a type, as decoding gives them."""
    if isinstance(type_, PrimitiveArray):
        elements = values(type_.element)
        return st.binary(max_size=4) if type_.element.name == "BYTE" else st.lists(elements, max_size=3)
    if isinstance(type_, ListTypeInfo):
        return st.lists(st.none() | values(type_.element), max_size=3)
    if isinstance(type_, MapTypeInfo):
        return st.dictionaries(values(type_.key), st.none() | values(type_.value), max_size=3)
    if isinstance(type_, TupleTypeInfo):
        return st.tuples(*(st.none() | values(field) for field in type_.get_field_types()))
    if isinstance(type_, RowTypeInfo):
        names = names_of(type_)
        return st.tuples(*(st.none() | values(field) for field in type_.get_field_types())).map(lambda drawn: _row(names, drawn))
    return SCALARS[type_.name][1]


def names_of(row: RowTypeInfo) -> list[str] | None:
    return row.to_json().get("names")


@st.composite
def successors(draw: st.DrawFn, type_: TypeInformation) -> Successor:
    """Draw a compatible successor of a type: one change somewhere in it, or none where nothing may change."""
    if isinstance(type_, PrimitiveArray):
        return _of_array(draw, type_)
    if isinstance(type_, ListTypeInfo):
        inner = draw(successors(type_.element))
        return Successor(_LISTS[draw(st.sampled_from(list(_LISTS)))](inner.type), _each(inner.convert), _optional(_each, inner.back))
    if isinstance(type_, MapTypeInfo):
        inner = draw(successors(type_.value))
        return Successor(Types.MAP(type_.key, inner.type), _entries(inner.convert), _optional(_entries, inner.back))
    if isinstance(type_, RowTypeInfo | TupleTypeInfo):
        return _of_fields(draw, type_)
    wider = [pair.split()[1] for pair in WIDENINGS if pair.split()[0] == type_.name]
    if not wider:
        return Successor(type_, _same, _same)
    name = draw(st.sampled_from(wider))
    return Successor(SCALARS[name][0], float if name in {"FLOAT", "DOUBLE"} else _same, lambda value: _narrowed(value, type_.name))


def _of_array(draw: st.DrawFn, type_: PrimitiveArray) -> Successor:
    numbers: Convert = (lambda value: [int.from_bytes([each], signed=True) for each in value]) if type_.element.name == "BYTE" else _same
    inner = draw(successors(type_.element))
    if draw(st.booleans()) and inner.type.name != "BIG_INT":
        to_bytes: Convert = (
            (lambda value: b"".join(each.to_bytes(1, signed=True) for each in value)) if type_.element.name == "BYTE" else _same
        )
        if inner.type.name == "BYTE":
            return Successor(Types.PRIMITIVE_ARRAY(inner.type), _same, _same)
        back = inner.back
        assert back is not None
        return Successor(
            Types.PRIMITIVE_ARRAY(inner.type),
            lambda value: [inner.convert(each) for each in numbers(value)],
            lambda value: to_bytes([back(each) for each in value]),
        )
    return Successor(Types.LIST(inner.type), lambda value: [inner.convert(each) for each in numbers(value)], None)


def _of_fields(draw: st.DrawFn, type_: RowTypeInfo | TupleTypeInfo) -> Successor:
    fields = type_.get_field_types()
    names = names_of(type_) if isinstance(type_, RowTypeInfo) else None
    change = draw(st.sampled_from(["part", "kind", "order", "add", "remove"]))
    if change == "kind" or (names is None and change != "part"):
        return _positional(draw, type_, fields, names)
    if change == "part" or names is None:
        at = draw(st.integers(0, len(fields) - 1))
        inner = draw(successors(fields[at]))
        new = [*fields[:at], inner.type, *fields[at + 1 :]]
        made = Types.TUPLE(new) if isinstance(type_, TupleTypeInfo) else Types.ROW(new) if names is None else Types.ROW_NAMED(names, new)
        return Successor(made, _at(at, inner.convert), None if inner.back is None else _at(at, inner.back))
    by_name = dict(zip(names, fields, strict=True))
    if change == "order":
        order = draw(st.permutations(names))
        return Successor(Types.ROW_NAMED(order, [by_name[name] for name in order]), _only(order), _only(names))
    free = [name for name in NAMES if name not in names]
    if change == "add" and free:
        name, added = draw(st.sampled_from(free)), draw(types(("INT", "STRING")))
        default = draw(st.none() | values(added))
        at = draw(st.integers(0, len(names)))
        order = [*names[:at], name, *names[at:]]
        made = Types.ROW_NAMED(order, [by_name.get(each, added) for each in order], defaults={name: default})
        return Successor(made, _only(order, {name: default}), _only(names))
    if len(names) < 2:
        return Successor(type_, _same, _same)
    left = draw(st.permutations(names))[1:]
    kept = [name for name in names if name in left]
    assert isinstance(type_, RowTypeInfo)
    # A field that is declared again has the default that it is declared with.
    defaults = {name: type_.default_of(name) for name in names if name not in kept}
    return Successor(Types.ROW_NAMED(kept, [by_name[name] for name in kept]), _only(kept), _only(names, defaults))


def _positional(draw: st.DrawFn, type_: TypeInformation, fields: list[TypeInformation], names: list[str] | None) -> Successor:
    kind = draw(st.sampled_from(["TUPLE", "ROW", "ROW_NAMED"]))
    new_names = list(NAMES[: len(fields)]) if names is None else names
    if kind == "TUPLE":
        made: TypeInformation = Types.TUPLE(fields)
        convert: Convert = _tuple
    elif kind == "ROW":
        made, convert = Types.ROW(fields), lambda row: _row(None, row)
    else:
        made, convert = Types.ROW_NAMED(new_names, fields), lambda row: _row(new_names, row)
    back: Convert = _tuple if type_.name == "TUPLE" else lambda row: _row(names, row)
    return Successor(made, convert, back)


@st.composite
def broken(draw: st.DrawFn, type_: TypeInformation) -> tuple[TypeInformation, tuple[str, ...]]:
    """Draw a type that may not follow, and the path of the difference."""
    if isinstance(type_, ListTypeInfo) and draw(st.booleans()):
        inner, path = draw(broken(type_.element))
        return _LISTS[type_.name](inner), ("element", *path)
    if isinstance(type_, MapTypeInfo) and draw(st.booleans()):
        inner, path = draw(broken(type_.value))
        return Types.MAP(type_.key, inner), ("value", *path)
    if isinstance(type_, RowTypeInfo | TupleTypeInfo):
        fields = type_.get_field_types()
        names = names_of(type_) if isinstance(type_, RowTypeInfo) else None
        if names is not None and draw(st.booleans()):
            return Types.ROW_NAMED([*names[1:], "renamed"], [*fields[1:], fields[0]]), ("renamed",)
        if names is None and draw(st.booleans()):
            longer = [*fields, Types.INT()]
            return Types.TUPLE(longer) if type_.name == "TUPLE" else Types.ROW(longer), (str(len(fields)),)
        at = draw(st.integers(0, len(fields) - 1))
        inner, path = draw(broken(fields[at]))
        new = [*fields[:at], inner, *fields[at + 1 :]]
        label = str(at) if names is None else names[at]
        made = Types.TUPLE(new) if type_.name == "TUPLE" else Types.ROW(new) if names is None else Types.ROW_NAMED(names, new)
        return made, (label, *path)
    narrower = [pair.split()[0] for pair in WIDENINGS if pair.split()[1] == type_.name]
    others = [Types.BOOLEAN() if type_.name != "BOOLEAN" else Types.LONG(), Types.PICKLED_BYTE_ARRAY(), Types.SQL_TIME()]
    return draw(st.sampled_from([*others, *(SCALARS[name][0] for name in narrower)])), ()


def _row(names: list[str] | None, drawn: Any) -> Row:
    row = Row(*drawn)
    if names is not None:
        row.set_field_names(names)
    return row


def _tuple(row: Any) -> Any:
    return None if row is None else tuple(row)


def _same(value: Any) -> Any:
    return value


def _each(convert: Convert) -> Convert:
    return lambda value: [None if each is None else convert(each) for each in value]


def _entries(convert: Convert) -> Convert:
    return lambda value: {key: None if each is None else convert(each) for key, each in value.items()}


def _optional(make: Callable[[Convert], Convert], convert: Convert | None) -> Convert | None:
    return None if convert is None else make(convert)


def _at(at: int, convert: Convert) -> Convert:
    def converted(row: Any) -> Any:
        parts = [convert(each) if index == at and each is not None else each for index, each in enumerate(row)]
        return tuple(parts) if isinstance(row, tuple) else _row(list(row._fields) if hasattr(row, "_fields") else None, parts)

    return converted


def _only(names: list[str], defaults: Mapping[str, Any] | None = None) -> Convert:
    return lambda row: _row(names, [row[name] if name in row else (defaults or {}).get(name) for name in names])


def _narrowed(value: Any, name: str) -> Any:
    if name in _BITS:
        limit = 1 << (_BITS[name] - 1)
        if not isfinite(value) or int(value) != value or not -limit <= value < limit:
            raise UnfitError
        return int(value)
    if name == "CHAR":
        if len(value) != 1:
            raise UnfitError
        return value
    rounded = Types.FLOAT().normalize(value)
    if abs(rounded) == float("inf") and abs(value) != float("inf"):
        raise UnfitError
    return rounded
