"""KeyCodec: encodes a record's key."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.types.base import TypeInformation, TypeJson, type_from_json

_U32: Final = struct.Struct(">I")


class KeyCodec:
    """Encodes the keys of one keyed step: a single value for one key column, a tuple for several.

    Equal keys give equal bytes, different keys different ones. One column is its payload; several are length-prefixed (u32).

    Args:
        types: One type per key column, at least one.

    Raises:
        InvalidInputError: A type cannot be a key (lists, dicts, rows, pickled objects).
    """

    def __init__(self, types: Sequence[TypeInformation]) -> None:
        if not types:
            raise InvalidInputError("a key needs at least one column", field="key")
        for type_ in types:
            if not type_.is_key:
                raise InvalidInputError(f"{type_!r} cannot be a key", field="key", remedy="Key by columns of single values.")
        self.types = tuple(types)
        self.encode: Callable[[Any], bytes] = self._single() if len(types) == 1 else self._encode_several
        """Return the bytes of a key; InvalidInputError when it is None, has a None in it, or is of another type."""
        self._decode: Callable[[bytes], Any] = types[0].decode if len(types) == 1 else self._decode_several

    def decode(self, data: bytes) -> Any:
        """Return the key of these bytes.

        Raises:
            CorruptDataError: ``data`` is no key of these types.
        """
        try:
            return self._decode(data)
        except (ValueError, IndexError, struct.error) as error:
            raise CorruptDataError("damaged key", path="store key") from error

    def to_json(self) -> list[TypeJson]:
        """Describe the key's types."""
        return [type_.to_json() for type_ in self.types]

    @classmethod
    def from_json(cls, description: Sequence[TypeJson]) -> KeyCodec:
        """Rebuild the codec from `to_json`."""
        return cls([type_from_json(each) for each in description])

    def _single(self) -> Callable[[Any], bytes]:
        type_ = self.types[0]
        encode_value = type_.encode
        if type_.name in {"FLOAT", "DOUBLE"}:
            return lambda key: encode_value(_canonical(_not_none(key)))
        if type_.name == "STRING":

            def encode_text(key: Any) -> bytes:
                # Nearly all keys take this one call; the type names what is wrong with others.
                if key.__class__ is str:
                    try:
                        return key.encode()
                    except UnicodeEncodeError:
                        pass
                return encode_value(_not_none(key))

            return encode_text

        def encode(key: Any) -> bytes:
            if key is None:
                raise _null_key()
            return encode_value(key)

        return encode

    def _encode_several(self, key: Any) -> bytes:
        if not isinstance(key, tuple) or len(key) != len(self.types):
            raise InvalidInputError(f"expected a tuple of {len(self.types)} values", field="key")
        parts = []
        for type_, value in zip(self.types, key, strict=True):
            payload = type_.encode(_canonical(_not_none(value)))
            parts.append(_U32.pack(len(payload)))
            parts.append(payload)
        return b"".join(parts)

    def _decode_several(self, data: bytes) -> tuple[Any, ...]:
        at = 0
        values = []
        for type_ in self.types:
            (length,) = _U32.unpack_from(data, at)
            end = at + 4 + length
            if end > len(data):
                raise ValueError("a column is longer than the key")
            values.append(type_.decode(data[at + 4 : end]))
            at = end
        if at != len(data):
            raise ValueError("trailing bytes")
        return tuple(values)


def _canonical(value: Any) -> Any:
    """Give the numbers that Spark groups together one form: -0.0 is 0.0, and there is one NaN."""
    if isinstance(value, float):
        return float("nan") if value != value else value + 0.0  # noqa: PLR0124  # only NaN differs from itself
    return value


def _not_none(value: Any) -> Any:
    if value is None:
        raise _null_key()
    return value


def _null_key() -> InvalidInputError:
    return InvalidInputError(
        "key column is null", field="key", remedy="Filter such rows out before key_by, or replace null with a default."
    )
