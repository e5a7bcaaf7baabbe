"""Decodes store entries without the job's code, using the types stored in the checkpoint."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateInfo, split_store_key, split_timer_store_key
from statefulspark.state.encoding.segments import Scan, whole_list
from statefulspark.state.encoding.values import EXPIRING, EXPIRING_LIST, EXPIRING_NONE, NONE, PLAIN, ValueCodec
from statefulspark.state.evolution.list_reader import reader_of
from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.operator.entries import RAW_OPERATOR
from statefulspark.state.tables.raw_keyed import RAW_KEYED, raw_stream_bytes
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.state.types.composites import ListTypeInfo
from statefulspark.state.types.types import TypeInformation, type_from_json

_PICKLED = "PICKLED_BYTE_ARRAY"

_PLAIN, _EXPIRING, _NONE, _EXPIRING_NONE, _EXPIRING_LIST = (
    bytes((version,)) for version in (PLAIN, EXPIRING, NONE, EXPIRING_NONE, EXPIRING_LIST)
)
_EXPIRY_BYTES = 8


_FROM_TEXT: Final[Mapping[str, Callable[[str], Any]]] = {
    "SQL_DATE": date.fromisoformat,
    "SQL_TIME": time.fromisoformat,
    "SQL_TIMESTAMP": datetime.fromisoformat,
    "BIG_DEC": Decimal,
    "PRIMITIVE_ARRAY": lambda text: base64.b64decode(text, validate=True),
}
"""Text form of a key for which JSON has no type, as `statefulspark state` prints it."""


def _nothing(first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:  # noqa: ARG001  finds no segments
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """One entry of a state."""

    key_group: int | None = None
    """None for operator state, which has no key."""
    key: Any = None
    """A single value for one key column, a tuple for several."""
    value: Any = None
    """Value, list of elements, or accumulator; None for a timer; of raw state, the length of the stream or partition in bytes. Bytes as stored when the type is pickled and was not to be unpickled, or
    when the value does not fit the type to which the state's declaration returned."""
    user_key: Any = None
    """Key within a map state or broadcast state."""
    timestamp_ms: int | None = None
    """When a timer is due."""
    expires_ms: int | None = None
    """When the value, or the last element of the list, expires; expired ones are shown as long as they are stored."""
    slot: int | None = None
    """Of an element of operator state: the slot that has it."""


class EntryDecoder:
    """Decodes the entries of one state.

    Args:
        info: The state, as the checkpoint describes it.
        unpickle: Also decode pickled values, which runs code that the bytes name: only for checkpoints you trust.
        until_ms: Leave out what has expired by then, in milliseconds since the epoch; None for nothing.

    Attributes:
        info: The state.
        where: Names the state in errors.

    Raises:
        IncompatibleFormatError: The types are not known to this release.
    """

    def __init__(self, info: StateInfo, *, unpickle: bool = False, until_ms: int | None = None) -> None:
        self.info = info
        self._until_ms = until_ms
        self.where = f"state {info.name!r} of uid {info.uid!r}"
        self._keys = KeyCodec.from_json(info.key_type)
        self._is_timer = info.kind in TIMER_KINDS
        self._is_raw = info.kind == RAW_KEYED
        self._user_key: Callable[[bytes], Any] | None = None
        self._value: Callable[[bytes], Any] = bytes
        self._reader: SchemaReader | None = None
        if self._is_timer or self._is_raw:
            return
        hidden = _any_hidden(info, unpickle)
        self._reader = reader_of(info, converts=not hidden)
        if info.kind == "map":
            self._user_key = bytes if _hidden(info.type["key"], unpickle) else type_from_json(info.type["key"]).decode
        value_type = info.type["value"] if info.kind == "map" else info.type
        if not (hidden if info.schemas else _hidden(value_type, unpickle)):
            self._value = ValueCodec(type_from_json(value_type), self.where).decode_nullable

    def encode_key(self, key: Any) -> bytes:
        """Return the bytes of a key.

        Raises:
            InvalidInputError: It is not of the key's types.
        """
        return self._keys.encode(key)

    def decode_key(self, data: bytes) -> Any:
        """Return the key of these bytes; raises CorruptDataError if they are none."""
        return self._keys.decode(data)

    def decode(self, store_key: bytes, stored: bytes, scan: Scan = _nothing) -> StateEntry | None:
        """Return the entry of a store key and value; None if it expired before the state's declaration changed last, or by ``until_ms``.

        Args:
            store_key: Not of a segment.
            stored: What is stored there.
            scan: Of the store that has the segments of a long list.

        Raises:
            CorruptDataError: The bytes do not fit the state's types, or a segment is missing.
        """
        if self._is_timer:
            timer = split_timer_store_key(store_key)
            return StateEntry(key_group=timer.key_group, key=self._keys.decode(timer.key), timestamp_ms=timer.timestamp_ms)
        parts = split_store_key(store_key)
        if self._is_raw:
            return StateEntry(key_group=parts.key_group, value=raw_stream_bytes(stored, where=self.where))
        decode: Callable[[bytes], Any] = self._value
        try:
            current = self._current(store_key, stored, scan, self._reader)
        except InvalidInputError:
            # A number that does not fit, say: shown as stored, so that the key is found and the others are shown as well.
            current, decode = self._current(store_key, stored, scan, reader_of(self.info, converts=False)), bytes
        if current is None:
            return None
        expires_ms, plain = self._without_expiry(current)
        if self._expired(expires_ms):
            return None
        return StateEntry(
            key_group=parts.key_group,
            key=self._keys.decode(parts.key),
            value=decode(plain),
            user_key=self._decode_user_key(parts.user_key),
            expires_ms=expires_ms,
        )

    def _current(self, store_key: bytes, stored: bytes, scan: Scan, reader: SchemaReader | None) -> bytes | None:
        """Return the bytes under the current schema, of a long list as of a short one; None if it is gone."""
        if self.info.kind == "list":
            return whole_list(store_key, stored, scan, self.where, reader)
        return stored if reader is None else reader.current(stored)

    def _without_expiry(self, stored: bytes) -> tuple[int | None, bytes]:
        """The expiry, and the bytes of the same value that does not expire; of a list, when its last element does."""
        version = stored[:1]
        if version in (_EXPIRING, _EXPIRING_NONE):
            if len(stored) < 1 + _EXPIRY_BYTES:
                raise CorruptDataError("damaged value", path=self.where)
            plain = _NONE if version == _EXPIRING_NONE else _PLAIN + stored[1 + _EXPIRY_BYTES :]
            return int.from_bytes(stored[1 : 1 + _EXPIRY_BYTES], "big", signed=True), plain
        if version == _EXPIRING_LIST:
            try:
                elements = ListTypeInfo.split(stored[1:])
            except (ValueError, struct.error) as exc:
                raise CorruptDataError("damaged list", path=self.where) from exc
            expiries = [int.from_bytes(element[:_EXPIRY_BYTES], "big", signed=True) for element in elements]
            living = [
                element[_EXPIRY_BYTES:] for element, expiry_ms in zip(elements, expiries, strict=True) if not self._expired(expiry_ms)
            ]
            return max(expiries, default=None), _PLAIN + ListTypeInfo.join(living)
        return None, stored

    def _expired(self, expires_ms: int | None) -> bool:
        return expires_ms is not None and self._until_ms is not None and expires_ms <= self._until_ms

    def _decode_user_key(self, data: bytes) -> Any:
        if self._user_key is None:
            return None
        try:
            return self._user_key(data)
        except InvalidInputError:
            raise  # an object whose class is gone: not damage
        except (ValueError, IndexError, OverflowError) as exc:
            raise CorruptDataError("damaged key of a map", path=self.where) from exc


class BroadcastDecoder:
    """Decodes the entries of a broadcast state.

    Args:
        info: The state, as the checkpoint describes it.
        unpickle: As for `EntryDecoder`.

    Raises:
        IncompatibleFormatError: The types are not known to this release.
    """

    def __init__(self, info: StateInfo, *, unpickle: bool) -> None:
        self._where = f"state {info.name!r} of uid {info.uid!r}"
        hidden = _any_hidden(info, unpickle)
        self._reader = reader_of(info, converts=not hidden)
        self._key = bytes if _hidden(info.type["key"], unpickle) else type_from_json(info.type["key"]).decode
        value_hidden = hidden if info.schemas else _hidden(info.type["value"], unpickle)
        self._value = bytes if value_hidden else ValueCodec(type_from_json(info.type["value"]), self._where).decode_nullable

    def decode(self, key: bytes, stored: bytes) -> StateEntry:
        """Return an entry.

        Raises:
            CorruptDataError: The bytes do not fit the state's types.
        """
        # Broadcast state has no time to live, so no value is gone.
        current = stored if self._reader is None else self._reader.current(stored) or b""
        try:
            return StateEntry(user_key=self._key(key), value=self._value(current))
        except InvalidInputError:
            raise  # an object whose class is gone: not damage
        except (ValueError, IndexError, OverflowError, struct.error) as exc:
            raise CorruptDataError("damaged key of broadcast state", path=self._where) from exc


def element_decoder(info: StateInfo, *, unpickle: bool) -> Callable[[bytes], Any]:
    """Return the decoder for an operator state's elements; it raises CorruptDataError for bytes that do not fit the type.

    Args:
        info: The state, as the checkpoint describes it.
        unpickle: As for `EntryDecoder`.

    Raises:
        IncompatibleFormatError: The type is not known to this release.
    """
    if info.kind == RAW_OPERATOR:
        return lambda element: len(element) - 1
    description = info.type["element"]
    hidden = _any_hidden(info, unpickle)
    reader = reader_of(info, converts=not hidden)
    decode = bytes if hidden else ValueCodec(type_from_json(description), f"state {info.name!r} of uid {info.uid!r}").decode
    if reader is None:
        return decode
    current = reader.current
    # Operator state has no time to live, so no element is gone.
    return lambda data: decode(current(data) or b"")


def _any_hidden(info: StateInfo, unpickle: bool) -> bool:
    """True if a declaration of the state has a pickled part that is not to be unpickled."""
    return any(_hidden(description, unpickle) for description in (info.type, *(schema.type for schema in info.schemas)))


def _hidden(description: Mapping[str, Any], unpickle: bool) -> bool:
    return not unpickle and is_pickled(description)


def is_pickled(description: Mapping[str, Any]) -> bool:
    """True if a type, or a part of it, is pickled."""
    return any(part == _PICKLED for part in _type_names(description))


def parse_key(info: StateInfo, text: str) -> Any:
    """Turn a key that a person typed into one of the state's key types.

    Args:
        info: The state.
        text: One column's value as it is; a JSON list for several columns. Dates and times in ISO form, bytes in base64.

    Raises:
        InvalidInputError: The text is no such key.
    """
    types = [type_from_json(each) for each in info.key_type]
    try:
        if len(types) == 1:
            (type_,) = types
            return _typed(type_, text if type_.name in {"STRING", "CHAR", *_FROM_TEXT} else json.loads(text))
        values = json.loads(text, parse_float=Decimal)
        if not isinstance(values, list):
            raise _wrong_key(types, text)
        return tuple(_typed(type_, value) for type_, value in zip(types, values, strict=True))
    except (ValueError, ArithmeticError, InvalidInputError):
        raise _wrong_key(types, text) from None


def parse_map_key(info: StateInfo, text: str) -> bytes:
    """Return the bytes of a key of a map that a person typed.

    Args:
        info: The state, a map.
        text: The key as `parse_key` takes one column's.

    Raises:
        InvalidInputError: The text is no such key, or keys of the map cannot be typed.
    """
    type_ = type_from_json(info.type["key"])
    if is_pickled(info.type["key"]):
        raise InvalidInputError("keys of this map are pickled objects", field="map key", remedy="Read all entries of the map instead.")
    try:
        return type_.encode(_typed(type_, text if type_.name in {"STRING", "CHAR", *_FROM_TEXT} else json.loads(text)))
    except (ValueError, ArithmeticError, TypeError, InvalidInputError):
        raise _wrong_key([type_], text, "map key") from None


def parse_keys(info: StateInfo, text: str) -> list[Any]:
    """Turn a JSON list of keys into keys of the state's key types.

    Args:
        info: The state.
        text: A JSON list; a key of several columns is a list as well. Dates and times in ISO form, bytes in base64, as texts.

    Raises:
        InvalidInputError: The text is no such list.
    """
    types = [type_from_json(each) for each in info.key_type]
    try:
        keys = json.loads(text, parse_float=Decimal)
        if not isinstance(keys, list) or (len(types) > 1 and not all(isinstance(key, list) for key in keys)):
            raise _wrong_keys(types)
        if len(types) == 1:
            return [_typed(types[0], key) for key in keys]
        return [tuple(_typed(type_, value) for type_, value in zip(types, key, strict=True)) for key in keys]
    except (ValueError, ArithmeticError, InvalidInputError):
        raise _wrong_keys(types) from None


def _typed(type_: TypeInformation, value: Any) -> Any:
    """One column of a key, from what JSON holds of it."""
    read = _FROM_TEXT.get(type_.name)
    return type_.normalize(value if read is None else read(str(value)))


def type_text(description: Mapping[str, Any]) -> str:
    """A type as its declaration reads, e.g. ``MAP(STRING, LONG)``; empty for timers."""
    parts = [type_text(description[part]) for part in ("key", "value", "element") if part in description]
    parts += [type_text(each) for each in description.get("fields", ())]
    name = str(description.get("type", ""))
    return f"{name}({', '.join(parts)})" if parts else name


def _type_names(description: Any) -> Iterator[str]:
    """All type names in a description, however deep."""
    if isinstance(description, Mapping):
        if isinstance(name := description.get("type"), str):
            yield name
        for part in description.values():
            yield from _type_names(part)
    elif isinstance(description, list | tuple):
        for part in description:
            yield from _type_names(part)


def _wrong_key(types: list[TypeInformation], text: str, field: str = "key") -> InvalidInputError:
    expected = ", ".join(type_.name for type_ in types)
    example = "a JSON list such as '[\"AA\", 1]'" if len(types) > 1 else "a value such as 42, 2024-02-29 or aGk="
    return InvalidInputError(
        f"{text!r} is not a key of type {expected}", field=field, remedy=f"Write the key as the command prints it, for example {example}."
    )


def _wrong_keys(types: list[TypeInformation]) -> InvalidInputError:
    example = '[["AA", 1], ["BB", 2]]' if len(types) > 1 else '["AA", "BB"] or [1, 2]'
    expected = ", ".join(type_.name for type_ in types)
    return InvalidInputError(f"not a JSON list of keys of type {expected}", field="keys", remedy=f"Write a list such as {example}")
