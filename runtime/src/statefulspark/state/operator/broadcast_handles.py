"""The objects with which functions use broadcast state: one that reads, and one that also changes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.broadcast_state import BroadcastState, ReadOnlyBroadcastState
from statefulspark.state.api.descriptors import MapStateDescriptor
from statefulspark.state.encoding.values import ValueCodec
from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.operator.broadcast_map import BroadcastMap


class ChangeGuard(Protocol):
    """Decides about changes."""

    def check_change(self, where: str) -> None:
        """Refuse a change where slots would make different ones.

        Raises:
            InvalidInputError: No row of the broadcast stream is being processed.
        """

    def check_growth(self, where: str, growth_bytes: int) -> None:
        """Refuse a change that would make the broadcast state of the step too large.

        Raises:
            InvalidInputError: It would.
        """


class DeclaredBroadcastState:
    """A declared state: its entries, how they are decoded, and both handles."""

    __slots__ = ("codec", "descriptor", "entries", "key_type", "owner", "readable", "reader", "value_type", "where", "writable")

    def __init__(
        self, owner: ChangeGuard, descriptor: MapStateDescriptor, entries: BroadcastMap, *, where: str, reader: SchemaReader | None
    ) -> None:
        self.owner = owner
        self.descriptor = descriptor
        self.entries = entries
        self.where = where
        self.reader = reader
        self.key_type = descriptor.type_info.key
        self.value_type = descriptor.type_info.value
        self.codec = ValueCodec(self.value_type, where)
        self.readable = _Readable(self)
        self.writable = _Writable(self)

    def encoded_key(self, key: Any) -> bytes:
        """Return the bytes of a key."""
        try:
            return self.key_type.encode(key)
        except InvalidInputError as error:
            raise error.named(f"map key of {self.where}") from error

    def encoded(self, value: Any) -> bytes:
        """Return the stored bytes of a value."""
        if value is not None and self.value_type.immutable:
            try:
                value = self.value_type.normalize(value)
            except InvalidInputError as error:
                raise error.named(self.where) from error
        stored = self.codec.encode_nullable(value)
        return stored if self.reader is None else self.reader.prefix + stored

    def value(self, key: bytes) -> Any:
        """Return the value of a key that is there. A value that cannot be changed is decoded once."""
        decoded = self.entries.decoded
        if key in decoded:
            return decoded[key]
        stored: bytes | None = self.entries.entries[key]
        if self.reader is not None and stored is not None:
            # Broadcast state has no time to live, so no value is gone.
            stored = self.reader.current(stored)
        value = self.codec.decode_nullable(stored or b"")
        if value is None or self.value_type.immutable or (self.value_type.immutable is None and self.value_type.is_immutable(value)):
            decoded[key] = value
        return value


class _Readable(ReadOnlyBroadcastState[Any, Any]):
    """Handle for rows of the keyed stream and timers."""

    __slots__ = ("_declared",)

    def __init__(self, declared: DeclaredBroadcastState) -> None:
        self._declared = declared

    def get(self, key: Any) -> Any:
        declared = self._declared
        data = declared.encoded_key(key)
        return declared.value(data) if data in declared.entries.entries else None

    def contains(self, key: Any) -> bool:
        return self._declared.encoded_key(key) in self._declared.entries.entries

    def items(self) -> Iterator[tuple[Any, Any]]:
        declared = self._declared
        return ((declared.key_type.decode(key), declared.value(key)) for key in self._keys())

    def keys(self) -> Iterator[Any]:
        return (self._declared.key_type.decode(key) for key in self._keys())

    def values(self) -> Iterator[Any]:
        return (self._declared.value(key) for key in self._keys())

    def is_empty(self) -> bool:
        return not self._declared.entries.entries

    def clear(self) -> None:
        raise cannot_change(self._declared.where)

    def _keys(self) -> Iterator[bytes]:
        """Iterate over the keys as of now, without those that are removed meanwhile."""
        entries = self._declared.entries.entries
        return (key for key in self._declared.entries.order() if key in entries)


class _Writable(_Readable, BroadcastState[Any, Any]):
    """Handle for rows of the broadcast stream."""

    __slots__ = ()

    def put(self, key: Any, value: Any) -> None:
        declared = self._declared
        declared.owner.check_change(declared.where)
        data_key, data = declared.encoded_key(key), declared.encoded(value)
        before = declared.entries.entries.get(data_key)
        declared.owner.check_growth(declared.where, len(data) - len(before) if before is not None else len(data_key) + len(data))
        declared.entries.put(data_key, data)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        declared = self._declared
        declared.owner.check_change(declared.where)
        declared.entries.remove(declared.encoded_key(key))

    def clear(self) -> None:
        declared = self._declared
        declared.owner.check_change(declared.where)
        for key in declared.entries.order():
            declared.entries.remove(key)


def cannot_change(where: str) -> InvalidInputError:
    """Build the error of a change where slots would make different ones."""
    return InvalidInputError(
        "it can be changed in process_broadcast_element only",
        field=where,
        remedy="Send the change as a row of the broadcast stream, so that every slot makes it",
    )
