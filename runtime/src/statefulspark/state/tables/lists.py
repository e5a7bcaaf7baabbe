"""KeyedListState: ListState on top of a table. The elements of a key are one stored value."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.api.states import ListState
from statefulspark.state.encoding.values import PLAIN
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.combining import none_added
from statefulspark.state.tables.key_context import KeyContext, no_current_key
from statefulspark.state.tables.point import PointTable
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.composites import ListTypeInfo

_VERSION: Final = bytes([PLAIN])
_ITEM_BYTES: Final = 48
"""Memory of one element beside its bytes: a place in a list and the head of an object."""


class KeyedListState(PointTable, ListState[Any]):
    """A list of elements per key.

    An entry is a list of the elements' payloads: adding encodes the new element only, and what `get` gives are copies.

    Args:
        context: The backend's.
        layers: The backend's.
        state_id: Of the state.
        element: Type of the elements.
        where: Names the state in errors.
    """

    __slots__ = ("_element", "_where")

    version = _VERSION

    def __init__(self, context: KeyContext, layers: Layers, state_id: int, *, element: TypeInformation, where: str) -> None:
        super().__init__(context, layers, state_id, restored=self._split, stored=self._join, entry_bytes=None, sizer=size_of_payloads)
        self._element = element
        self._where = where

    def get(self) -> Iterator[Any]:
        entry = self._entry()
        return iter(self._decoded(entry)) if entry else iter(())

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        payloads = [self._payload(value) for value in values]
        ident = self._context.ident
        if ident is None:
            raise no_current_key()
        if not payloads:
            return
        size_bytes = size_of_payloads(payloads)
        changed = self._changed.get(ident)
        if changed is None:
            # The cache's list stays as it is: it is what a rollback returns to.
            before = self._kept()
            changed = self._changed[ident] = [*before, *payloads]
            size_bytes += size_of_payloads(before)
        else:
            changed.extend(payloads)
        self._changed_payload_bytes += size_bytes
        self._context.grow(size_bytes)

    def update(self, values: Iterable[Any]) -> None:
        payloads = [self._payload(value) for value in values]
        if not payloads:
            self._remove()
            return
        if self._context.ident is None:
            raise no_current_key()
        self._replace(payloads)

    def clear(self) -> None:
        self._remove()

    def _kept(self) -> list[bytes]:
        """Return the current key's elements that adding more keeps."""
        return self._entry() or []

    def _replace(self, payloads: list[bytes]) -> None:
        self._changed[self._context.ident] = payloads
        size_bytes = size_of_payloads(payloads)
        self._changed_payload_bytes += size_bytes
        self._context.grow(size_bytes)

    def _payload(self, value: Any) -> bytes:
        if value is None:
            raise none_added()
        try:
            return self._element.encode(value)
        except InvalidInputError as error:
            raise InvalidInputError(str(error), field=self._where, remedy=error.remedy) from error

    def _decoded(self, payloads: list[bytes]) -> list[Any]:
        decode = self._element.decode
        try:
            return [decode(payload) for payload in payloads]
        except InvalidInputError as error:
            raise InvalidInputError(error.message, field=self._where, remedy=error.remedy) from error
        except (ValueError, IndexError, struct.error, OverflowError) as error:
            raise CorruptDataError("damaged element", path=self._where) from error

    def _split(self, data: bytes) -> list[bytes]:
        if data[:1] != self.version:
            raise CorruptDataError("not a list", path=self._where, expected=f"version {self.version[0]}")
        try:
            return ListTypeInfo.split(data[1:])
        except (ValueError, struct.error) as error:
            raise CorruptDataError("damaged list", path=self._where) from error

    def _join(self, payloads: list[bytes]) -> bytes:
        return self.version + ListTypeInfo.join(payloads)


def size_of_payloads(payloads: list[bytes]) -> int:
    """Return the memory that elements take."""
    return len(payloads) * _ITEM_BYTES + sum(map(len, payloads))
