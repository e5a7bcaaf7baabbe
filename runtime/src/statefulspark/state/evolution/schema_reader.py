"""SchemaReader: reads stored values of an evolved state. Lists: `list_reader`.

Such values begin with ``7 | number of the schema u16``; those without it are of schema 0. A value is converted step by step through all schemas up
to the current one, so the result does not depend on when it is loaded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.encoding.layout import Schema, StateInfo
from statefulspark.state.encoding.values import EVOLVED, EXPIRING, EXPIRING_NONE, NONE, PLAIN, unreadable
from statefulspark.state.evolution.compatibility import without_defaults
from statefulspark.state.evolution.conversions import converter
from statefulspark.state.types.base import type_from_json

SCHEMAS_MAX: Final = 1 << 16
"""Schemas of one state: the number is stored in two bytes."""

_PREFIX: Final = struct.Struct(">BH")
_VERSIONED_EXPIRY: Final = struct.Struct(">Bq")
_DECODING_ERRORS: Final = (ValueError, IndexError, struct.error, OverflowError)

_Reencode = Callable[[bytes], bytes]


class StoredPart(NamedTuple):
    """A stored value, as far as it can be read without decoding it."""

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

    __slots__ = ("_converts", "_current", "_reencoders", "_schemas", "_types", "expires", "prefix", "where")

    def __init__(self, info: StateInfo, *, converts: bool = True) -> None:
        self.where = f"state {info.name!r} of uid {info.uid!r}"
        self._schemas: Sequence[Schema] = info.schemas
        self._current = len(info.schemas) - 1
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
        part = self._part(number, inner)
        return None if part.gone else self._joined(number, part)

    def part(self, data: bytes) -> StoredPart:
        """Return the value with the expiry it has under the current schema. Decodes no value.

        Raises:
            CorruptDataError: The bytes are damaged.
        """
        return self._part(*self._split(data))

    def _split(self, data: bytes) -> tuple[int, bytes]:
        if data[:1] != self.prefix[:1]:
            return 0, data
        if len(data) <= _PREFIX.size:
            raise self._damaged()
        number = _PREFIX.unpack_from(data)[1]
        if not 1 <= number <= self._current:
            raise CorruptDataError("a value names a schema that the state does not have", path=self.where, found=f"schema {number}")
        return number, data[_PREFIX.size :]

    def _part(self, number: int, inner: bytes) -> StoredPart:
        return self._followed(self._read(inner, self._schemas[number].ttl_ms is not None), number)

    def _read(self, inner: bytes, expires: bool) -> StoredPart:
        version = inner[0] if inner else 0
        if expires and version in (EXPIRING, EXPIRING_NONE) and len(inner) >= _VERSIONED_EXPIRY.size:
            expiry_ms = _VERSIONED_EXPIRY.unpack_from(inner)[1]
            return StoredPart(expiry_ms, False, None if version == EXPIRING_NONE else inner[_VERSIONED_EXPIRY.size :])
        if not expires and version in (PLAIN, NONE):
            return StoredPart(None, False, None if version == NONE else inner[1:])
        raise unreadable(inner, self.where)

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


_PARTS: Final = {
    "list": "element",
    "map": "value",
    "operator-list": "element",
    "operator-union": "element",
    "operator-broadcast": "value",
}
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
