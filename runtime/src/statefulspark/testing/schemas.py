"""Schemas as tests write them: Arrow's, a dict of Arrow types, Spark's DDL text or a StructType. None of them needs Java."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.output_tag import OutputTag, SparkSchema
from statefulspark.process.output.side_outputs import SideOutput
from statefulspark.state.types.base import TypeInformation

__all__ = ["Schema", "arrow_schema", "side_outputs_of"]

Schema: TypeAlias = pa.Schema | Mapping[str, pa.DataType] | str | SparkSchema | TypeInformation

_REMEDY: Final = "Write 'name type, name type' with Spark's types, or give a dict of Arrow types"
_ZONE: Final = "UTC"
"""Of Spark's ``timestamp``; a job uses the session's."""
_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(10, 0),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", _ZONE),
    "timestamp_ntz": pa.timestamp("us"),
}
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:])")


def arrow_schema(schema: Schema) -> pa.Schema:
    """Returns the schema as Arrow's.

    Raises:
        InvalidInputError: DDL text is not a list of columns of types that have no parameters but those of decimals.
    """
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        return _Ddl(schema).schema()
    if isinstance(schema, Mapping):
        return pa.schema(list(schema.items()))
    if isinstance(schema, TypeInformation):
        raise InvalidInputError(f"{schema!r} cannot be read without Spark", field="schema", remedy=_REMEDY)
    return pa.schema([_arrow_field(field) for field in schema.fields])


def side_outputs_of(tags: Iterable[OutputTag]) -> tuple[SideOutput, ...]:
    """Returns the side outputs that a list of tags declares."""
    return tuple(SideOutput(tag, arrow_schema(tag.schema)) for tag in tags)


def _arrow_field(field: Any) -> pa.Field:
    """The Arrow field of a StructField."""
    return pa.field(field.name, _arrow_type(field.dataType), nullable=field.nullable)


def _arrow_type(kind: Any) -> pa.DataType:
    """The Arrow type of one of Spark's, which says by its attributes what it is made of."""
    if hasattr(kind, "fields"):
        return pa.struct([_arrow_field(field) for field in kind.fields])
    if hasattr(kind, "elementType"):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType), nullable=kind.containsNull))
    if hasattr(kind, "keyType"):
        item = pa.field("value", _arrow_type(kind.valueType), nullable=kind.valueContainsNull)
        return pa.map_(_arrow_type(kind.keyType), item)
    return _Ddl(f"c {kind.simpleString()}").schema().field(0).type


class _Ddl:
    """Reads DDL text: ``name type [NOT NULL], ...``."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        place = 0
        end = len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._wrong()
            self._tokens.append(found[1])
            place = found.end()

    def schema(self) -> pa.Schema:
        """Returns all columns."""
        columns = self._fields("")
        if self._tokens:
            raise self._wrong()
        return pa.schema(columns)

    def _fields(self, end: str) -> list[pa.Field]:
        fields = [self._field()]
        while self._next(","):
            fields.append(self._field())
        if end:
            self._expect(end)
        return fields

    def _field(self) -> pa.Field:
        name = self._pop()
        if name[:1] == "`":
            name = name[1:-1].replace("``", "`")
        elif not name.isidentifier():
            raise self._wrong()
        self._next(":")
        kind = self._type()
        nullable = not self._next("not")
        if not nullable:
            self._expect("null")
        return pa.field(name, kind, nullable=nullable)

    def _type(self) -> pa.DataType:
        name = self._pop().lower()
        if name == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return pa.list_(element)
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            item = self._type()
            self._expect(">")
            return pa.map_(key, item)
        if name == "struct":
            self._expect("<")
            return pa.struct(self._fields(">"))
        if name == "decimal" and self._next("("):
            precision, scale = int(self._number()), 0
            if self._next(","):
                scale = int(self._number())
            self._expect(")")
            return pa.decimal128(precision, scale)
        if name not in _TYPES:
            raise self._wrong()
        return _TYPES[name]

    def _number(self) -> str:
        number = self._pop()
        if not number.isdecimal():
            raise self._wrong()
        return number

    def _pop(self) -> str:
        if not self._tokens:
            raise self._wrong()
        return self._tokens.pop(0)

    def _next(self, token: str) -> bool:
        if self._tokens and self._tokens[0].lower() == token:
            self._tokens.pop(0)
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._next(token):
            raise self._wrong()

    def _wrong(self) -> InvalidInputError:
        return InvalidInputError(
            f"{self._text!r} is not a list of columns that can be read without Spark",
            field="schema",
            remedy=_REMEDY,
        )
