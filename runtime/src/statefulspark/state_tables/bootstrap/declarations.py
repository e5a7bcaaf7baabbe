"""Declarations: name, kind and type of a state whose rows are given, as a job declares it or as the columns of the rows say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.descriptors import StateDescriptor
from statefulspark.state.api.names import is_reserved
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.types.arrow_types import field_names
from statefulspark.state.types.base import TypeInformation, type_from_json
from statefulspark.state.types.composites import ListTypeInfo
from statefulspark.state.types.types import Types
from statefulspark.state_tables.bootstrap.state_rows import EXPIRES, MAP_KEY, VALUE

KINDS: Final = ("value", "list", "map", "reducing", "aggregating")
"""Kinds of state whose rows can be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A state as a job declares it.

    Attributes:
        name: Of the state.
        kind: One of `KINDS`.
        type: A list's is LIST, a map's MAP.
        ttl_ms: Time to live, None if values do not expire.
    """

    name: str
    kind: str
    type: TypeInformation
    ttl_ms: int | None = None

    @classmethod
    def of(cls, descriptor: StateDescriptor) -> Declaration:
        """Return the declaration that a descriptor makes."""
        ttl_ms = descriptor.ttl.get_ttl().to_milliseconds() if descriptor.ttl is not None else None
        return cls(name=descriptor.name, kind=descriptor.kind, type=descriptor.type_info, ttl_ms=ttl_ms)

    @classmethod
    def stored(cls, info: StateInfo) -> Declaration:
        """Return the declaration of a state that a checkpoint describes.

        Raises:
            InvalidInputError: It is a state of another kind.
        """
        if info.kind not in KINDS or is_reserved(info.name):
            raise InvalidInputError(
                f"{info.name!r} of uid {info.uid!r} is of the kind {info.kind!r}",
                field="state",
                remedy=f"Only states that functions declare as {', '.join(KINDS)} take rows",
            )
        return cls(name=info.name, kind=info.kind, type=type_from_json(info.type), ttl_ms=info.ttl_ms)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Columns of the value in the table of the state."""
        description = self.type.to_json()
        if self.kind == "map":
            description = description["value"]
        return tuple(field_names(description)) if description["type"] == "ROW" else (VALUE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedColumns:
    """Roles of the columns of given rows.

    Attributes:
        keys: The key, in order.
        values: The value; empty for all columns that are nothing else.
        map_key: The key within a map, None for other kinds of state.
        expires: When the value expires, in milliseconds since the epoch; None if no column says so.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...] = ()
    map_key: str | None = None
    expires: str | None = None

    def values_of(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns of the value."""
        others = {*self.keys, self.map_key, self.expires}
        return self.values or tuple(name for name in schema.names if name not in others)

    def check(self, schema: pa.Schema) -> None:
        """Raise InvalidInputError unless each named column is there once, and there is a value."""
        values = self.values_of(schema)
        optional = [name for name in (self.map_key, self.expires) if name is not None]
        named = [*self.keys, *values, *optional]
        for name in named:
            if schema.names.count(name) != 1:
                raise InvalidInputError(
                    f"expected one column {name!r}", field="columns", remedy=f"Name columns of {', '.join(schema.names)}"
                )
        if not values:
            raise InvalidInputError("no column has the value", field="columns", remedy="Name a column that is no part of the key")
        if (twice := next((name for name in named if named.count(name) > 1), None)) is not None:
            raise InvalidInputError(f"{twice!r} is named for two things", field="columns", remedy="Name it once")

    def renamed(self, schema: pa.Schema, declared: Declaration) -> dict[str, str]:
        """Return the columns of the state's table by the columns of the rows, in order. Columns that nobody names are not among them.

        Raises:
            InvalidInputError: Two of them would have one name.
        """
        values = self.values_of(schema)
        wanted = declared.value_columns if len(values) == 1 == len(declared.value_columns) else values
        found = {name: name for name in self.keys}
        found |= dict(zip(values, wanted, strict=True))
        for name, column in ((self.map_key, MAP_KEY), (self.expires, EXPIRES)):
            if name is not None:
                found[name] = column
        if (twice := next((name for name in self.keys if [*found.values()].count(name) > 1), None)) is not None:
            raise InvalidInputError(
                f"the key and another column of the state would be named {twice!r}",
                field="columns",
                remedy="A key with this name cannot be written: let a job build the state from its source",
            )
        return found


def inferred(name: str, kind: str, schema: pa.Schema, columns: NamedColumns, ttl_ms: int | None) -> Declaration:
    """Return the declaration that the types of the columns say.

    >>> rows = pa.schema({"user": pa.string(), "total": pa.int64()})
    >>> inferred("total", "value", rows, NamedColumns(keys=("user",)), None).type
    Types.LONG()

    Args:
        name: Of the state.
        kind: One of `KINDS`.
        schema: Of the rows.
        columns: Which of them are what; `NamedColumns.check` has accepted them.
        ttl_ms: Time to live, None if values do not expire.

    Raises:
        InvalidInputError: A column is of a type that no state has, or kind and columns contradict each other.
    """
    if (kind == "map") != (columns.map_key is not None):
        raise InvalidInputError("a map, and nothing else, has a column with its keys", field="map key", remedy="Name it for a map only")
    types = [type_of(schema.field(each).type, each) for each in columns.values_of(schema)]
    type_: TypeInformation = types[0] if len(types) == 1 else Types.ROW_NAMED(list(columns.values_of(schema)), types)
    if kind == "list" and not isinstance(type_, ListTypeInfo):
        raise InvalidInputError(
            "the value of a list state is one column with a list",
            field="value",
            remedy="Group the rows of a key, with collect_list or array_agg",
        )
    if columns.map_key is not None:
        type_ = Types.MAP(type_of(schema.field(columns.map_key).type, columns.map_key), type_)
    return Declaration(name=name, kind=kind, type=type_, ttl_ms=ttl_ms)


_EXACT: Final[Sequence[tuple[Callable[[pa.DataType], bool], Callable[[], TypeInformation]]]] = (
    (pt.is_boolean, Types.BOOLEAN),
    (pt.is_int8, Types.BYTE),
    (lambda kind: pt.is_int16(kind) or pt.is_uint8(kind), Types.SHORT),
    (lambda kind: pt.is_int32(kind) or pt.is_uint16(kind), Types.INT),
    (lambda kind: pt.is_int64(kind) or pt.is_uint32(kind), Types.LONG),
    (pt.is_uint64, Types.BIG_INT),
    (lambda kind: pt.is_float16(kind) or pt.is_float32(kind), Types.FLOAT),
    (pt.is_float64, Types.DOUBLE),
    (lambda kind: pt.is_string(kind) or pt.is_large_string(kind), Types.STRING),
    (lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind), lambda: Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (pt.is_date, Types.SQL_DATE),
    (pt.is_time, Types.SQL_TIME),
    (pt.is_timestamp, Types.SQL_TIMESTAMP),
    (pt.is_decimal, Types.BIG_DEC),
)


def type_of(kind: pa.DataType, column: str) -> TypeInformation:
    """Return the type of state that holds the values of a column, of the same width.

    Raises:
        InvalidInputError: No type of state does.
    """
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return Types.LIST(type_of(kind.value_type, column))
    if pt.is_map(kind):
        return Types.MAP(type_of(kind.key_type, column), type_of(kind.item_type, column))
    if pt.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return Types.ROW_NAMED([each.name for each in fields], [type_of(each.type, column) for each in fields])
    for fits, make in _EXACT:
        if fits(kind):
            return make()
    raise InvalidInputError(f"no state has values of the type {kind}", field=f"column {column!r}", remedy="Cast it, for example to string")
