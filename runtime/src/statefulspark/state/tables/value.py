"""KeyedValueState: ValueState on top of a table. Its two methods run for every row, so they avoid repeated work and calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import is_
from typing import Any

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.states import ValueState
from statefulspark.state.encoding.values import ENCODED_BYTES, Encoded, ValueCodec
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.key_context import KeyContext, no_current_key
from statefulspark.state.tables.point import UNREAD, PointTable
from statefulspark.state.tables.table import ENTRY_BYTES
from statefulspark.state.types.base import TypeInformation


class KeyedValueState(PointTable, ValueState[Any]):
    """One value per key. A value that could be changed by the user is kept as its stored bytes and decoded for each read.

    Such bytes are of class `Encoded` only where a value may be bytes itself: others are kept as the store returns them.

    Args:
        context: The backend's.
        layers: The backend's.
        state_id: Of the state.
        type_: Of the values.
        where: Names the state in errors.
    """

    __slots__ = ("_accepted_class", "_decode", "_encode", "_type", "_where")

    def __init__(self, context: KeyContext, layers: Layers, state_id: int, *, type_: TypeInformation, where: str) -> None:
        codec = ValueCodec(type_, where)
        encoded = bytes if type_.immutable is False else Encoded
        super().__init__(
            context,
            layers,
            state_id,
            restored=restorer(type_, codec.decode, encoded),
            stored=codec.encode if type_.immutable else storer(codec.encode, encoded),
            entry_bytes=type_.decoded_bytes if type_.immutable else None,
            sizer=size_in_memory(type_, encoded),
            encoded=encoded,
        )
        self._encoded_is_stored = not type_.immutable
        self._type = type_
        self._where = where
        self._decode = codec.decode
        self._encode = codec.encode
        # Values of varying size always take the slow way, which measures them.
        self._accepted_class = type_.accepted_class if self._entry_bytes is not None else None

    def value(self) -> Any:
        ident = self._context.ident
        if ident in self._changed:
            entry = self._changed[ident]
        else:
            try:
                entry = self._young[ident]
            except KeyError:
                entry = self._load(ident)
        if entry.__class__ is self._encoded:
            return self._decode(entry)
        return entry

    def update(self, value: Any) -> None:
        ident = self._context.ident
        if value.__class__ is not self._accepted_class:
            if value is None:
                self._remove()
                return
            value = self._checked(value)
            if self._entry_bytes is None:
                self._measure(value)
        elif ident is None:
            raise no_current_key()
        self._changed[ident] = value

    def put_entry(self, value: Any) -> None:
        """Replace the current key's value by one that the runtime has made: it cannot change, and is what `TypeInformation.normalize` returns."""
        context = self._context
        ident = context.ident
        if ident is None:
            raise no_current_key()
        self._changed[ident] = value
        if self._entry_bytes is None:
            size_bytes = ENCODED_BYTES + len(value) if value.__class__ is self._encoded else self._sizer(value)
            self._changed_payload_bytes += size_bytes
            context.growth_bytes += size_bytes
            if context.growth_bytes > context.growth_bytes_max:
                context.relieve()

    def put_entries(self, idents: Sequence[bytes], entries: Sequence[bytes]) -> None:
        """Replace the values of keys by stored bytes that the runtime has made, as `put_entry` does."""
        context = self._context
        self._changed.update(zip(idents, entries, strict=True))
        size_bytes = ENCODED_BYTES * len(entries) + sum(map(len, entries))
        self._changed_payload_bytes += size_bytes
        context.grow(size_bytes)

    def values(self, idents: Sequence[bytes]) -> list[Any]:
        """Return the values of keys, None for those without one; errors as of `value`."""
        entries = self.entries(idents)
        if True in map(is_, entries, repeat(UNREAD)):
            self._context.ident = idents[next(number for number, entry in enumerate(entries) if entry is UNREAD)]
            self.value()  # raises what is wrong with it
        if self._type.immutable:
            return entries
        encoded, decode = self._encoded, self._decode
        return [decode(entry) if entry.__class__ is encoded else entry for entry in entries]

    def put_values(self, idents: Sequence[bytes], values: list[Any], *, checked: bool) -> None:
        """Replace the values of keys; None removes that of a key. If they are ``checked``, they are what `TypeInformation.normalize` returns.

        Raises:
            InvalidInputError: A value is not of the state's type.
        """
        entries = values if checked else [None if value is None else self._entry_of(value) for value in values]
        changed = self._changed
        if None in entries:
            young = self._young
            for ident, entry in zip(idents, entries, strict=True):
                if entry is None and young.get(ident, UNREAD) is None:
                    changed.pop(ident, None)  # as in `_remove`
                else:
                    changed[ident] = entry
        else:
            changed.update(zip(idents, entries, strict=True))
        if self._entry_bytes is None:
            size_bytes = sum(map(self._sizer, (entry for entry in entries if entry is not None)))
            self._changed_payload_bytes += size_bytes
        else:
            size_bytes = len(entries) * (ENTRY_BYTES + self._entry_bytes)
        self._context.grow(size_bytes)

    def clear_entries(self, idents: Iterable[bytes]) -> None:
        """Remove the values of keys, which are stored."""
        self._changed.update(dict.fromkeys(idents))

    def clear(self) -> None:
        self._remove()

    def _put(self, entry: Any) -> None:
        """Replace the current key's entry."""
        self._changed[self._context.ident] = entry
        if self._entry_bytes is None:
            self._measure(entry)

    def _measure(self, entry: Any) -> None:
        size_bytes = self._sizer(entry)
        self._changed_payload_bytes += size_bytes
        self._context.grow(size_bytes)

    def _checked(self, value: Any) -> Any:
        """Check a value and make the entry to keep for it."""
        if self._context.ident is None:
            raise no_current_key()
        return self._entry_of(value)

    def _entry_of(self, value: Any) -> Any:
        type_ = self._type
        try:
            if type_.immutable:
                entry = type_.normalize(value)
            elif type_.is_immutable(value):
                entry = value
            else:
                entry = self._encoded(self._encode(value))
        except InvalidInputError as error:
            raise error.named(self._where) from error
        return entry


def restorer(type_: TypeInformation, decode: Callable[[bytes], Any], encoded: type[bytes] = Encoded) -> Callable[[bytes], Any]:
    """Return a function that makes of stored bytes what a cache keeps: the value, or its bytes, of class ``encoded``, when it could be changed."""
    if type_.immutable:
        return decode
    if type_.immutable is False:
        return encoded

    def restored(data: bytes) -> Any:
        value = decode(data)
        return value if value is None or type_.is_immutable(value) else encoded(data)

    return restored


def storer(encode: Callable[[Any], bytes], encoded: type[bytes] = Encoded) -> Callable[[Any], bytes]:
    """Return a function that makes stored bytes of what a cache keeps."""
    return lambda entry: entry if entry.__class__ is encoded else encode(entry)


def size_in_memory(type_: TypeInformation, encoded: type[bytes] = Encoded) -> Callable[[Any], int]:
    """Return a function that measures a value, decoded or kept as bytes."""
    size_of = type_.size_of
    if type_.immutable:
        return size_of
    return lambda entry: ENCODED_BYTES + len(entry) if entry.__class__ is encoded else size_of(entry)
