"""SchemaReader: reads stored values of an evolved state.

Such values begin with ``7 | number of the schema u16``; those without it are of schema 0. A value is converted step by step through all schemas up
to the current one, so the result does not depend on when it is loaded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, pairwise
from typing import Any, Final, NamedTuple

from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InvalidInputError
from statefulspark.state.encoding.layout import Schema, StateInfo
from statefulspark.state.encoding.values import EVOLVED, EXPIRING, EXPIRING_LIST, EXPIRING_NONE, NONE, PLAIN
from statefulspark.state.evolution.compatibility import without_defaults
from statefulspark.state.evolution.conversions import converter
from statefulspark.state.types.base import type_from_json
from statefulspark.state.types.composites import ListTypeInfo

SCHEMAS_MAX: Final = 1 << 16
"""Schemas of one state: the number is stored in two bytes."""

_PREFIX: Final = struct.Struct(">BH")
_EXPIRY: Final = struct.Struct(">q")
_VERSIONED_EXPIRY: Final = struct.Struct(">Bq")
_DECODING_ERRORS: Final = (ValueError, IndexError, struct.error, OverflowError)

_Reencode = Callable[[bytes], bytes]


class StoredPart(NamedTuple):
    """A stored value or element, as far as it can be read without decoding it."""

    expiry_ms: int | None
    """When it expires, None if it does not."""
    gone: bool
    """True if it expired before a later declaration, so that it is no longer part of the state."""
    payload: bytes | None
    """As the schema wrote it; None for None."""


class SchemaReader:
    """Reads the stored values of one state, whatever schema wrote them.

    Args:
        info: The state, with its schemas.
        converts: False to leave values as their schemas wrote them, and only follow expiries: nothing is decoded.

    Attributes:
        prefix: With these bytes every value that is written now begins.
        expires: True if the current schema has a time to live.
    """

    __slots__ = ("_converts", "_current", "_is_list", "_reencoders", "_schemas", "_types", "expires", "prefix", "where")

    def __init__(self, info: StateInfo, *, converts: bool = True) -> None:
        self.where = f"state {info.name!r} of uid {info.uid!r}"
        self._schemas: Sequence[Schema] = info.schemas
        self._current = len(info.schemas) - 1
        self._is_list = info.kind == "list"
        part = _PARTS.get(info.kind)
        self._types = [schema.type if part is None else schema.type[part] for schema in info.schemas]
        self._converts = converts
        self._reencoders: dict[int, _Reencode | None] = {}
        self.expires = info.schemas[-1].ttl_ms is not None
        self.prefix = _PREFIX.pack(EVOLVED, self._current)

    @property
    def may_have_expired(self) -> bool:
        """True if values of an earlier schema may be gone or expire."""
        return any(schema.ttl_ms is not None for schema in self._schemas)

    def current(self, data: bytes) -> bytes | None:
        """Return the bytes that the current schema would have written, without the prefix; None if the value is gone.

        Raises:
            CorruptDataError: The bytes are damaged.
            InvalidInputError: A value does not fit the type, to which the declaration returned, or cannot be unpickled.
        """
        number, inner = self._split(data)
        if number == self._current:
            return inner
        parts = [part for part in self._parts(number, inner) if not part.gone]
        if not self._is_list:
            return self._joined(number, parts[0]) if parts else None
        if not parts:
            return None
        payloads = [self._reencoded(number, part.payload or b"") for part in parts]
        if self.expires:
            expiring = [_EXPIRY.pack(part.expiry_ms or 0) + payload for part, payload in zip(parts, payloads, strict=True)]
            return bytes([EXPIRING_LIST]) + ListTypeInfo.join(expiring)
        return bytes([PLAIN]) + ListTypeInfo.join(payloads)

    def parts(self, data: bytes) -> list[StoredPart]:
        """Return the value, or the elements of a list, with the expiry they have under the current schema. Decodes no value.

        Raises:
            CorruptDataError: The bytes are damaged.
        """
        return self._parts(*self._split(data))

    def shortened(self, data: bytes, kept: Iterable[bool]) -> bytes:
        """Return a stored list with only the elements that are kept, as its schema wrote them.

        Args:
            data: The list.
            kept: One for each of its `parts`.
        """
        inner = self._split(data)[1]
        head = len(data) - len(inner) + 1
        return data[:head] + ListTypeInfo.join(list(compress(ListTypeInfo.split(inner[1:]), kept)))

    def _split(self, data: bytes) -> tuple[int, bytes]:
        if data[:1] != self.prefix[:1]:
            return 0, data
        if len(data) <= _PREFIX.size:
            raise self._damaged()
        number = _PREFIX.unpack_from(data)[1]
        if not 1 <= number <= self._current:
            raise CorruptDataError("a value names a schema that the state does not have", path=self.where, found=f"schema {number}")
        return number, data[_PREFIX.size :]

    def _parts(self, number: int, inner: bytes) -> list[StoredPart]:
        read = self._read_list if self._is_list else self._read_value
        expires = self._schemas[number].ttl_ms is not None
        return [self._followed(part, number) for part in read(inner, expires)]

    def _read_value(self, inner: bytes, expires: bool) -> list[StoredPart]:
        version = inner[0] if inner else 0
        if version > EVOLVED:
            raise IncompatibleFormatError("unknown version of a value", path=self.where, expected=f"1 to {EVOLVED}", found=str(version))
        if expires and version in (EXPIRING, EXPIRING_NONE) and len(inner) >= _VERSIONED_EXPIRY.size:
            expiry_ms = _VERSIONED_EXPIRY.unpack_from(inner)[1]
            return [StoredPart(expiry_ms, False, None if version == EXPIRING_NONE else inner[_VERSIONED_EXPIRY.size :])]
        if not expires and version in (PLAIN, NONE):
            return [StoredPart(None, False, None if version == NONE else inner[1:])]
        raise self._damaged()

    def _read_list(self, inner: bytes, expires: bool) -> list[StoredPart]:
        if inner[:1] != bytes([EXPIRING_LIST if expires else PLAIN]):
            raise self._damaged()
        try:
            elements = ListTypeInfo.split(inner[1:])
            if not expires:
                return [StoredPart(None, False, element) for element in elements]
            return [StoredPart(_EXPIRY.unpack_from(element)[0], False, element[_EXPIRY.size :]) for element in elements]
        except (ValueError, struct.error) as error:
            raise CorruptDataError("damaged list", path=self.where) from error

    def _followed(self, part: StoredPart, number: int) -> StoredPart:
        """Follow the expiry of a part through the schemas after its own."""
        expiry_ms = part.expiry_ms
        for schema in self._schemas[number + 1 :]:
            if expiry_ms is not None and expiry_ms <= schema.since_ms:
                return part._replace(gone=True)
            if schema.ttl_ms is None:
                expiry_ms = None
            elif expiry_ms is None:
                expiry_ms = schema.since_ms + schema.ttl_ms
        return part._replace(expiry_ms=expiry_ms)

    def _joined(self, number: int, part: StoredPart) -> bytes:
        payload = b"" if part.payload is None else self._reencoded(number, part.payload)
        if self.expires:
            version = EXPIRING_NONE if part.payload is None else EXPIRING
            return _VERSIONED_EXPIRY.pack(version, part.expiry_ms or 0) + payload
        return bytes([NONE if part.payload is None else PLAIN]) + payload

    def _reencoded(self, number: int, payload: bytes) -> bytes:
        if number not in self._reencoders:
            self._reencoders[number] = _reencoder(self._types[number:]) if self._converts else None
        reencode = self._reencoders[number]
        if reencode is None:
            return payload
        try:
            return reencode(payload)
        except InvalidInputError as error:
            raise InvalidInputError(error.message, field=self.where, remedy=error.remedy) from error
        except _DECODING_ERRORS as error:
            raise CorruptDataError("damaged value", path=self.where) from error

    def _damaged(self) -> CorruptDataError:
        return CorruptDataError("damaged value", path=self.where)


def reader_of(info: StateInfo, *, converts: bool = True) -> SchemaReader | None:
    """Return what reads the values of a state that has evolved, None for one that has not; arguments as in `SchemaReader`."""
    return SchemaReader(info, converts=converts) if info.schemas else None


_PARTS: Final = {"list": "element", "map": "value", "operator-list": "element", "operator-union": "element"}
"""By kind: the part of its type that stored values are of."""


def _reencoder(descriptions: Sequence[dict[str, Any]]) -> _Reencode | None:
    """Return a function that converts payloads of the first type to the last one, through all in between; None if they are the same bytes."""
    bare = [without_defaults(description) for description in descriptions]
    if all(each == bare[0] for each in bare):
        return None
    types = [type_from_json(description) for description in descriptions]
    steps = [converter(*pair) for pair, (old, new) in zip(pairwise(types), pairwise(bare), strict=True) if old != new]
    decode, encode = types[0].decode, types[-1].encode

    def reencode(payload: bytes) -> bytes:
        value = decode(payload)
        for step in steps:
            value = step(value)
        return encode(value)

    return reencode
