"""Composite types: arrays, lists, maps, tuples, rows.

Elements are length-prefixed (u32); the length 0xFFFFFFFF means None, so any element may be None. Counts come first (u32).
"""

from __future__ import annotations

import struct
from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from sys import byteorder
from typing import Any, Final, TypeVar, cast

from statefulspark.errors import InvalidInputError
from statefulspark.state.row import Row, RowKind, field_names
from statefulspark.state.types.base import TypeInformation, TypeJson, readable, type_from_json, wrong_value

_T = TypeVar("_T")
_U32: Final = struct.Struct(">I")
_NULL_BYTES: Final = b"\xff\xff\xff\xff"
_ARRAY_CODES: Final = {"SHORT": "h", "INT": "i", "LONG": "q", "FLOAT": "f", "DOUBLE": "d"}


class PrimitiveArray(TypeInformation):
    """Numbers without None: ``bytes`` for an array of BYTE, else a list; fixed width, no lengths.

    Raises:
        InvalidInputError: The element type is not BYTE, SHORT, INT, LONG, FLOAT, DOUBLE or BOOLEAN.
    """

    name = "PRIMITIVE_ARRAY"
    decoded_bytes = None

    def __init__(self, element: TypeInformation) -> None:
        if element.name not in {"BYTE", "BOOLEAN", *_ARRAY_CODES}:
            raise InvalidInputError(f"{element!r} is not a primitive type", field="element_type", remedy="Use Types.BASIC_ARRAY.")
        self.element = element
        self._of_bytes = element.name == "BYTE"
        self.immutable = self.is_key = self._of_bytes
        self.accepted_class = bytes if self._of_bytes else None

    def normalize(self, value: Any) -> Any:
        if self._of_bytes:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise wrong_value(self, "bytes", value)
            return bytes(value)
        return [self.element.normalize(each) for each in _elements(self, value)]

    def encode(self, value: Any) -> bytes:
        numbers = self.normalize(value)
        if self._of_bytes:
            return cast("bytes", numbers)
        if self.element.name == "BOOLEAN":
            return bytes(numbers)
        return _swapped(array(_ARRAY_CODES[self.element.name], numbers)).tobytes()

    def decode(self, data: bytes) -> Any:
        if self._of_bytes:
            return data
        if self.element.name == "BOOLEAN":
            return [self.element.decode(data[at : at + 1]) for at in range(len(data))]
        return _swapped(array(_ARRAY_CODES[self.element.name], data)).tolist()

    def size_of(self, value: Any) -> int:
        return 33 + len(value)

    def to_json(self) -> TypeJson:
        return {"type": self.name, "element": self.element.to_json()}

    def __repr__(self) -> str:
        return f"Types.{self.name}({self.element!r})"


class ListTypeInfo(TypeInformation):
    """A list whose elements are of one type: LIST, BASIC_ARRAY and OBJECT_ARRAY."""

    immutable = False
    decoded_bytes = None
    is_key = False

    def __init__(self, name: str, element: TypeInformation) -> None:
        self.name = name
        self.element = element

    def normalize(self, value: Any) -> list[Any]:
        return [None if each is None else self.element.normalize(each) for each in _elements(self, value)]

    def encode(self, value: Any) -> bytes:
        elements = _elements(self, value)
        return b"".join([_U32.pack(len(elements)), *(_prefixed(self.element, each) for each in elements)])

    def decode(self, data: bytes) -> list[Any]:
        fields = _Fields(data)
        count = fields.count()
        return fields.finish([fields.next(self.element) for _ in range(count)])

    @staticmethod
    def join(payloads: Sequence[bytes]) -> bytes:
        """Make the payload of a list from those of its elements."""
        parts = [_U32.pack(len(payloads))]
        for payload in payloads:
            parts.append(_U32.pack(len(payload)))
            parts.append(payload)
        return b"".join(parts)

    @staticmethod
    def split(data: bytes) -> list[bytes]:
        """Take the payload of a list without None apart; the inverse of `join`."""
        fields = _Fields(data)
        count = fields.count()
        return fields.finish([fields.next_payload() for _ in range(count)])

    def to_json(self) -> TypeJson:
        return {"type": self.name, "element": self.element.to_json()}

    def __repr__(self) -> str:
        return f"Types.{self.name}({self.element!r})"


class MapTypeInfo(TypeInformation):
    """A dict; its order is kept."""

    name = "MAP"
    immutable = False
    decoded_bytes = None
    is_key = False

    def __init__(self, key: TypeInformation, value: TypeInformation) -> None:
        self.key = key
        self.value = value

    def normalize(self, value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise wrong_value(self, "dict", value)
        return {self.key.normalize(key): None if each is None else self.value.normalize(each) for key, each in value.items()}

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, Mapping):
            raise wrong_value(self, "dict", value)
        parts = [_U32.pack(len(value))]
        for key, each in value.items():
            parts.append(_prefixed(self.key, key))
            parts.append(_prefixed(self.value, each))
        return b"".join(parts)

    def decode(self, data: bytes) -> dict[Any, Any]:
        fields = _Fields(data)
        count = fields.count()
        return fields.finish({fields.next(self.key): fields.next(self.value) for _ in range(count)})

    def to_json(self) -> TypeJson:
        return {"type": self.name, "key": self.key.to_json(), "value": self.value.to_json()}

    def __repr__(self) -> str:
        return f"Types.MAP({self.key!r}, {self.value!r})"


class TupleTypeInfo(TypeInformation):
    """A tuple with one type per place."""

    name = "TUPLE"
    decoded_bytes = None

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        self._fields = tuple(field_types)
        self.immutable = all(field.immutable is True for field in self._fields)
        self.is_key = all(field.is_key for field in self._fields)

    def normalize(self, value: Any) -> tuple[Any, ...]:
        pairs = zip(self._fields, self._values(value), strict=True)
        return tuple([None if each is None else field.normalize(each) for field, each in pairs])

    def encode(self, value: Any) -> bytes:
        return b"".join([_prefixed(field, each) for field, each in zip(self._fields, self._values(value), strict=True)])

    def decode(self, data: bytes) -> tuple[Any, ...]:
        fields = _Fields(data)
        return fields.finish(tuple([fields.next(field) for field in self._fields]))

    def get_field_types(self) -> list[TypeInformation]:
        """Return the type of each place."""
        return list(self._fields)

    def size_of(self, value: Any) -> int:
        sizes = [field.size_of(each) for field, each in zip(self._fields, value, strict=True) if each is not None]
        return 48 + 8 * len(value) + sum(sizes)

    def to_json(self) -> TypeJson:
        return {"type": self.name, "fields": [field.to_json() for field in self._fields]}

    def __repr__(self) -> str:
        return f"Types.TUPLE({list(self._fields)!r})"

    def _values(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple):
            raise wrong_value(self, "tuple", value)
        if len(value) != len(self._fields):
            raise InvalidInputError(f"expected {len(self._fields)} values for {self!r}, got {len(value)}")
        return value


class RowTypeInfo(TypeInformation):
    """A `Row`. With field names a named row is matched by name, anything else by position; without, always by position.

    The payload is that of the fields. A row of another kind than INSERT has one more byte at the end, the number of its `RowKind`.

    Args:
        field_types: Types of the fields.
        field_names: Their names; None for a row by position.
        defaults: By name of the field, the value that rows have which were stored before the field was added.

    Raises:
        InvalidInputError: The names are not one per type, a default is of no field, or not of the field's type.
    """

    name = "ROW"
    immutable = False
    decoded_bytes = None
    is_key = False

    def __init__(
        self,
        field_types: Sequence[TypeInformation],
        field_names: Sequence[str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        if field_names is not None and (len(field_names) != len(field_types) or len(set(field_names)) != len(field_names)):
            raise InvalidInputError(f"{len(field_types)} types need {len(field_types)} distinct names", field="field_names")
        self._fields = tuple(field_types)
        self._names = tuple(field_names) if field_names is not None else None
        self._defaults = {name: self._default_payload(name, value) for name, value in (defaults or {}).items() if value is not None}

    def default_of(self, field_name: str) -> Any:
        """Return a fresh copy of a field's default, None if it has none."""
        payload = self._defaults.get(field_name)
        return None if payload is None else self._fields[self.get_field_index(field_name)].decode(payload)

    def _default_payload(self, name: str, value: Any) -> bytes:
        field = f"defaults[{name!r}]"
        if name not in (self._names or ()):
            raise InvalidInputError(
                "the row has no such field", field=field, remedy="Give defaults of fields that are named in field_names"
            )
        try:
            return self._fields[self.get_field_index(name)].encode(value)
        except InvalidInputError as error:
            raise error.named(field) from error

    def get_field_names(self) -> list[str]:
        """Return the names of the fields; those of a row by position are ``f0``, ``f1`` and so on, as in Flink."""
        return [f"f{index}" for index in range(len(self._fields))] if self._names is None else list(self._names)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of a field, -1 if the type has no field names.

        Raises:
            ValueError: The type has field names, but not this one.
        """
        return -1 if self._names is None else self._names.index(field_name)

    def get_field_types(self) -> list[TypeInformation]:
        """Return the type of each field."""
        return list(self._fields)

    def normalize(self, value: Any) -> Row:
        pairs = zip(self._fields, self._values(value), strict=True)
        return self._row([None if each is None else field.normalize(each) for field, each in pairs], _kind(value))

    def encode(self, value: Any) -> bytes:
        parts = [_prefixed(field, each) for field, each in zip(self._fields, self._values(value), strict=True)]
        kind = _kind(value)
        return b"".join(parts if kind is RowKind.INSERT else [*parts, bytes([kind.value])])

    def decode(self, data: bytes) -> Row:
        fields = _Fields(data)
        values = [fields.next(field) for field in self._fields]
        rest = fields.rest()
        if len(rest) > 1 or rest == b"\0":
            raise ValueError("trailing bytes")
        return self._row(values, RowKind(rest[0]) if rest else RowKind.INSERT)

    def to_json(self) -> TypeJson:
        description: TypeJson = {"type": self.name, "fields": [field.to_json() for field in self._fields]}
        if self._names is not None:
            description["names"] = list(self._names)
        if self._defaults:
            description["defaults"] = {name: urlsafe_b64encode(payload).decode("ascii") for name, payload in sorted(self._defaults.items())}
        return description

    def __repr__(self) -> str:
        if self._names is None:
            return f"Types.ROW({list(self._fields)!r})"
        return f"Types.ROW_NAMED({list(self._names)!r}, {list(self._fields)!r})"

    def _row(self, values: Sequence[Any], kind: RowKind) -> Row:
        row = Row(*values)
        if self._names is not None:
            row.set_field_names(self._names)
        if kind is not RowKind.INSERT:
            row.set_row_kind(kind)
        return row

    def _values(self, value: Any) -> Sequence[Any]:
        if not isinstance(value, Row | tuple | list):
            raise wrong_value(self, "Row", value)
        if len(value) != len(self._fields):
            raise InvalidInputError(f"expected {len(self._fields)} values for {self!r}, got {len(value)}")
        if self._names is not None and isinstance(value, Row) and (names := field_names(value)) is not None:
            if set(names) != set(self._names):
                raise InvalidInputError(f"the fields of the Row are not those of {self!r}")
            return [value[name] for name in self._names]
        return list(value)


def _kind(value: Any) -> RowKind:
    return value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT


class _Fields:
    """Reads length-prefixed payloads one after the other."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        """Read a count."""
        (count,) = _U32.unpack_from(self._data, self._at)
        self._at += 4
        return int(count)

    def next(self, type_: TypeInformation) -> Any:
        """Read the next payload as a value of ``type_``."""
        if self._data[self._at : self._at + 4] == _NULL_BYTES:
            self._at += 4
            return None
        return type_.decode(self.next_payload())

    def next_payload(self) -> bytes:
        """Read the next payload, which is not None, as it is."""
        end = self.count() + self._at
        if end > len(self._data):
            raise ValueError("a field is longer than the value it is part of")
        payload = self._data[self._at : end]
        self._at = end
        return payload

    def rest(self) -> bytes:
        """Return what is left over."""
        return self._data[self._at :]

    def finish(self, value: _T) -> _T:
        """Return ``value`` after checking that nothing is left over."""
        if self._at != len(self._data):
            raise ValueError("trailing bytes")
        return value


def _prefixed(type_: TypeInformation, value: Any) -> bytes:
    if value is None:
        return _NULL_BYTES
    payload = type_.encode(value)
    return _U32.pack(len(payload)) + payload


def _elements(type_: TypeInformation, value: Any) -> Sequence[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_value(type_, "list", value)
    return value if isinstance(value, list | tuple) else list(value)


def _swapped(numbers: array[Any]) -> array[Any]:
    if byteorder == "little":
        numbers.byteswap()
    return numbers


def _fields_of(description: Mapping[str, Any]) -> Iterator[TypeInformation]:
    return (type_from_json(field) for field in description["fields"])


def _row_of(description: Mapping[str, Any]) -> RowTypeInfo:
    row = RowTypeInfo(list(_fields_of(description)), description.get("names"))
    # Not decoded before it is needed, because a default may be pickled and inspection must not run what the bytes name.
    row._defaults = {name: urlsafe_b64decode(text) for name, text in description.get("defaults", {}).items()}  # noqa: SLF001  # the class of this module
    return row


for _name in ("LIST", "BASIC_ARRAY", "OBJECT_ARRAY"):
    readable(_name, lambda description, name=_name: ListTypeInfo(name, type_from_json(description["element"])))  # type: ignore[misc]  # its default
readable("PRIMITIVE_ARRAY", lambda description: PrimitiveArray(type_from_json(description["element"])))
readable("MAP", lambda description: MapTypeInfo(type_from_json(description["key"]), type_from_json(description["value"])))
readable("TUPLE", lambda description: TupleTypeInfo(list(_fields_of(description))))
readable("ROW", _row_of)
