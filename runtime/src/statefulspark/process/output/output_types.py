"""Strict conversion of Python values to Arrow arrays: by default, Arrow would truncate 1.5 to 1 and read an int as a timestamp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from statefulspark.errors import type_name
from statefulspark.state.row import Row, field_names

__all__ = ["MisfitError", "ValueType"]

_ACCEPTED: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...], tuple[type, ...]], ...] = (
    # test, accepted types with their subclasses, subclasses of these that are refused all the same
    (pt.is_boolean, (bool, np.bool_), ()),
    (pt.is_integer, (int, np.integer), (bool, np.timedelta64)),
    (pt.is_floating, (float, int, np.floating, np.integer), (bool, np.timedelta64)),
    (pt.is_decimal, (Decimal, int), (bool,)),
    (lambda kind: pt.is_string(kind) or pt.is_large_string(kind), (str,), ()),
    (lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind), (bytes, bytearray, memoryview), ()),
    (pt.is_timestamp, (datetime, np.datetime64), ()),
    (pt.is_date, (date,), (datetime,)),
    (pt.is_time, (time,), ()),
    (pt.is_duration, (timedelta, np.timedelta64), ()),
    (pt.is_struct, (Mapping, tuple, Row), ()),
    (pt.is_map, (Mapping,), ()),
    (lambda kind: pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind), (list, tuple, np.ndarray), (Row,)),
)


class MisfitError(Exception):
    """A value does not fit: below which part of the column (``path``), what was expected, what Python type was found."""

    def __init__(self, expected: pa.DataType, found: str, *, path: str = "", remedy: str = "") -> None:
        self.expected = expected
        self.found = found
        self.path = path
        self.remedy = remedy
        super().__init__(f"{found} for {expected}")

    def below(self, name: str) -> MisfitError:
        """The same, seen from the value around it."""
        self.path = name + self.path
        return self


class ValueType:
    """Python types that an Arrow type accepts. Checks the types of values only."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._bases, self._refused = next(((bases, refused) for test, bases, refused in _ACCEPTED if test(kind)), ((object,), ()))
        self._known: set[type] = {type(None)}
        self._has_numpy = False
        """True once a value was a ``numpy.datetime64``."""
        self._plain = self._nested()

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return the values as an Arrow array of this type.

        Raises:
            MisfitError: one of them does not fit.
        """
        self.check(values)
        plain = self._plain
        if pt.is_timestamp(self.kind) and (self.kind.tz is None or self._has_numpy):
            plain = self._time
        if plain is not None:
            values = [None if value is None else plain(value) for value in values]
        try:
            return pa.array(values, self.kind)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            raise self._first_misfit(values) from error

    def check(self, values: Sequence[Any]) -> None:
        """Refuse values of a type that has no business here."""
        found = set(map(type, values))
        if found <= self._known:
            return
        for each in found - self._known:
            if not issubclass(each, self._bases) or (self._refused and issubclass(each, self._refused)):
                raise MisfitError(self.kind, type_name(each), remedy=self._remedy(each))
            self._known.add(each)
            self._has_numpy = self._has_numpy or issubclass(each, np.datetime64)

    def plain(self, value: Any) -> Any:
        """Check one value inside another and return what Arrow takes for it."""
        if value is None:
            return None
        self.check((value,))
        if pt.is_timestamp(self.kind):
            return self._time(value)
        return value if self._plain is None else self._plain(value)

    def _time(self, value: datetime | np.datetime64) -> Any:
        """Return a time as Arrow takes it in every unit, and refuse one with a zone in a column without."""
        if isinstance(value, np.datetime64):
            # Arrow refuses units that are not the column's, and days.
            found = value.astype("datetime64[us]").item()
            if isinstance(found, int):
                raise MisfitError(self.kind, "a datetime64 outside the years 1 to 9999", remedy="Give another value, or None")
            return found
        if self.kind.tz is None and value.tzinfo is not None:
            raise MisfitError(
                self.kind,
                "a datetime with a zone",
                remedy="Give the local time without its zone, value.replace(tzinfo=None), or make the column a TIMESTAMP, which is a point in time",
            )
        return value

    def _remedy(self, found: type) -> str:
        if pt.is_timestamp(self.kind):
            return "Give a datetime, for example datetime.fromtimestamp(ms / 1000, UTC)"
        if pt.is_integer(self.kind) and issubclass(found, float):
            return "Round it first (int(...) or round(...)), or make the column a double"
        if pt.is_date(self.kind) and issubclass(found, datetime):
            return "Give its .date()"
        return ""

    def _first_misfit(self, values: Sequence[Any]) -> MisfitError:
        for value in values:
            try:
                pa.array([value], self.kind)
            except (pa.ArrowException, OverflowError, ValueError, TypeError):
                return self._misfit(value)
        return MisfitError(self.kind, "values that the type cannot hold together")

    def _misfit(self, value: Any) -> MisfitError:
        """Return the error of a value whose type is right."""
        if pt.is_map(self.kind) and any(name is None for name, _ in value):
            return MisfitError(self.kind, "a dict with the key None", remedy="Leave the key out, or give it a name")
        if pt.is_decimal(self.kind) and isinstance(value, Decimal) and value.is_finite():
            step = Decimal(1).scaleb(-self.kind.scale)
            return MisfitError(
                self.kind,
                "a Decimal with more digits than the type",
                remedy=f"Round it: value.quantize(Decimal('{step}')), or make the column wider",
            )
        return MisfitError(self.kind, f"{type_name(type(value))} that the type cannot hold")

    def _nested(self) -> Callable[[Any], Any] | None:
        kind = self.kind
        if pt.is_struct(kind):
            fields = [kind.field(index) for index in range(kind.num_fields)]
            return _struct(kind, [(field.name, field.nullable, ValueType(field.type)) for field in fields])
        if pt.is_map(kind):
            key, item = ValueType(kind.key_type), ValueType(kind.item_type)
            return lambda value: [(_inside(key, "{key}", name), _inside(item, "{}", each)) for name, each in value.items()]
        if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
            element = ValueType(kind.value_type)
            return lambda value: [_inside(element, "[]", each) for each in value]
        return None


def _inside(kind: ValueType, path: str, value: Any) -> Any:
    try:
        return kind.plain(value)
    except MisfitError as misfit:
        raise misfit.below(path) from misfit.__cause__


def _struct(kind: pa.DataType, fields: list[tuple[str, bool, ValueType]]) -> Callable[[Any], dict[str, Any]]:
    names = [name for name, _, _ in fields]

    def convert(value: Any) -> dict[str, Any]:
        given = _by_name(value, names)
        if given is None or given.keys() != set(names):
            raise MisfitError(kind, f"{type_name(type(value))} with other fields", remedy=f"Give exactly: {', '.join(names)}")
        result = {name: _inside(each, f".{name}", given[name]) for name, _, each in fields}
        for name, nullable, each in fields:
            if result[name] is None and not nullable:
                raise MisfitError(each.kind, "None", path=f".{name}", remedy="The field is not nullable: give a value")
        return result

    return convert


def _by_name(value: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    """A struct's fields by name; a row without names goes by position."""
    if isinstance(value, Mapping):
        return value
    given = field_names(value) if isinstance(value, Row) else getattr(value, "_fields", None) or getattr(value, "__fields__", None)
    values = tuple(value)
    given = names if given is None else given
    return dict(zip(given, values, strict=True)) if len(given) == len(values) else None
