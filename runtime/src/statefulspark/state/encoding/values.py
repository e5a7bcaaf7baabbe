"""ValueCodec: encodes one stored value.

The first byte is the version, which also says what follows:
``1 | payload``, ``2 | expiry i64 (ms since the epoch) | payload``, ``3`` for None (only in maps), ``4 | expiry i64`` for None that expires,
``5 | payload of a LIST`` whose elements each begin with an expiry i64, ``6`` and ``8`` the parts of a long list (`encoding.segments`),
``7 | number of a schema u16 | value of another version`` in states that have evolved; `schema_reader` removes it before a codec reads the value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InvalidInputError
from statefulspark.state.types.base import TypeInformation

PLAIN: Final = 1
EXPIRING: Final = 2
NONE: Final = 3
EXPIRING_NONE: Final = 4
EXPIRING_LIST: Final = 5
LIST_HEAD: Final = 6
EVOLVED: Final = 7
"""Begins the values of a state that has evolved; see `schema_reader`."""
EVOLVED_BYTES: Final = 3
"""Length of this version and the number of the schema."""
LIST_SEGMENT: Final = 8

_VERSIONS: Final = frozenset({PLAIN, EXPIRING, NONE, EXPIRING_NONE, EXPIRING_LIST, LIST_HEAD, EVOLVED, LIST_SEGMENT})

_PLAIN_BYTE: Final = b"\x01"
_NONE_BYTE: Final = b"\x03"
_EXPIRY: Final = struct.Struct(">Bq")
_EXPIRY_BYTES: Final = _EXPIRY.size


class Encoded(bytes):
    """A stored value kept as bytes in a cache, because its decoded object could be changed by the user."""

    __slots__ = ()


ENCODED_BYTES: Final = 33
"""Memory of an `Encoded` without bytes."""


class ValueCodec:
    """Turns values of one state into stored bytes and back.

    Args:
        type_: The type of the values.
        where: Names the state in errors.

    Attributes:
        encode: Bytes of a normalized value; InvalidInputError when it does not fit.
        decode: Value of stored bytes; CorruptDataError when they are damaged or expire.
    """

    __slots__ = ("_header", "_struct", "_type", "decode", "encode", "where")

    def __init__(self, type_: TypeInformation, where: str) -> None:
        self._type = type_
        self.where = where
        self.encode: Callable[[Any], bytes] = self._encode
        self.decode: Callable[[bytes], Any] = type_.decoder(self._decode)
        if type_.struct_format is not None:
            # One struct for version and number saves half of the time per value.
            self._struct = struct.Struct(">B" + type_.struct_format)
            self._header = PLAIN
            self.encode = self._encode_number
            self.decode = self._decode_number

    def split_expiry(self, data: bytes) -> tuple[int, bytes]:
        """Return the expiry of bytes that expire, and the bytes of the same value that does not.

        Raises:
            CorruptDataError: The bytes are damaged or do not expire.
        """
        if len(data) < _EXPIRY_BYTES or data[0] not in {EXPIRING, EXPIRING_NONE}:
            raise unreadable(data, self.where)
        version, expiry_ms = _EXPIRY.unpack_from(data)
        return expiry_ms, _NONE_BYTE if version == EXPIRING_NONE else _PLAIN_BYTE + data[_EXPIRY_BYTES:]

    def encode_nullable(self, value: Any) -> bytes:
        """Return the bytes of a value that may be None."""
        return _NONE_BYTE if value is None else self.encode(value)

    def decode_nullable(self, data: bytes) -> Any:
        """Return a value that may be None."""
        return None if data == _NONE_BYTE else self.decode(data)

    def _encode(self, value: Any) -> bytes:
        try:
            return _PLAIN_BYTE + self._type.encode(value)
        except InvalidInputError as error:
            raise error.named(self.where) from error

    def _decode(self, data: bytes) -> Any:
        if not data or data[0] != PLAIN:
            raise unreadable(data, self.where)
        return self._value(data[1:])

    def _encode_number(self, value: Any) -> bytes:
        try:
            return self._struct.pack(PLAIN, value)
        except struct.error:
            raise InvalidInputError(f"the number does not fit {self._type!r}", field=self.where, remedy="Declare a wider type.") from None

    def _decode_number(self, data: bytes) -> Any:
        try:
            version, value = self._struct.unpack(data)
        except struct.error:
            raise unreadable(data, self.where) from None
        if version != PLAIN:
            raise unreadable(data, self.where)
        return value

    def _value(self, payload: bytes) -> Any:
        try:
            return self._type.decode(payload)
        except InvalidInputError as error:
            raise error.named(self.where) from error
        except (ValueError, IndexError, struct.error, OverflowError) as error:
            raise CorruptDataError("damaged value", path=self.where) from error


def unreadable(data: bytes, where: str) -> CorruptDataError:
    """Build the error of stored bytes that cannot be read: of a version that this release does not know, or damaged.

    Args:
        data: The bytes.
        where: Names the state.
    """
    if not data or data[0] in _VERSIONS:
        return CorruptDataError("damaged value", path=where)
    return IncompatibleFormatError(
        "unknown version of a value. Use the release that wrote it, or a later one", path=where, expected="1 to 8", found=str(data[0])
    )


def join_expiry(expiry_ms: int, plain: bytes) -> bytes:
    """Return the bytes of a value that expires from those of the same value that does not."""
    if plain == _NONE_BYTE:
        return _EXPIRY.pack(EXPIRING_NONE, expiry_ms)
    return _EXPIRY.pack(EXPIRING, expiry_ms) + plain[1:]


def expiry_of(data: bytes) -> int | None:
    """Return when stored bytes expire (ms since the epoch), None when they do not, without decoding the value."""
    if len(data) < _EXPIRY_BYTES or data[0] not in {EXPIRING, EXPIRING_NONE}:
        return None
    return int.from_bytes(data[1:_EXPIRY_BYTES], "big", signed=True)
