"""KeyedListState: ListState on top of a table. A short list is one stored value, a long one a head and segments."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.api.states import ListState
from statefulspark.state.encoding.segments import NEVER_MS, Head, is_head, segment_suffix
from statefulspark.state.encoding.values import PLAIN
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.combining import none_added
from statefulspark.state.tables.key_context import KeyContext, no_current_key
from statefulspark.state.tables.list_entries import ListEntry, LongList, ReplacedList, size_of_entry, size_of_payloads
from statefulspark.state.tables.point import PointTable
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.composites import ListTypeInfo

SHORT_LIST_BYTES: Final = 4096
_VERSION: Final = bytes([PLAIN])


class KeyedListState(PointTable, ListState[Any]):
    """A list of elements per key.

    An entry is a list of the elements' payloads, or stands for a long list whose elements are read only when they are asked for. Adding
    encodes the new elements only, and what `get` gives are copies.

    Args:
        context: The backend's.
        layers: The backend's.
        state_id: Of the state.
        element: Type of the elements.
        where: Names the state in errors.

    Attributes:
        short_bytes: Size up to which a list is one stored value.
    """

    __slots__ = ("_element", "_where", "short_bytes")

    version = _VERSION

    def __init__(self, context: KeyContext, layers: Layers, state_id: int, *, element: TypeInformation, where: str) -> None:
        super().__init__(context, layers, state_id, restored=self._restore, stored=self._join, entry_bytes=None, sizer=size_of_entry)
        self.short_bytes = SHORT_LIST_BYTES
        self._element = element
        self._where = where

    def get(self) -> Iterator[Any]:
        return iter(self._decoded(self._payloads()))

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
        if changed is not None:
            changed.extend(payloads)
        else:
            # The cache's list stays as it is: it is what a rollback returns to.
            before = self._kept()
            if isinstance(before, LongList):
                changed = before.copy()
                changed.extend(payloads)
            else:
                changed = [*before, *payloads]
                size_bytes += size_of_payloads(before)
            self._changed[ident] = changed
        self._changed_payload_bytes += size_bytes
        self._context.grow(size_bytes)

    def update(self, values: Iterable[Any]) -> None:
        self._replace([self._payload(value) for value in values])

    def clear(self) -> None:
        self._replace([])

    def changes(self) -> list[Change]:
        heads = self._heads
        return [
            (ident[:2] + heads[len(ident)] + ident[2:] + suffix, data)
            for ident, entry in self._changed.items()
            if ident is not None
            for suffix, data in self._stored_changes(entry)
        ]

    def commit(self) -> None:
        for ident, entry in self._changed.items():
            self._changed[ident] = self._committed(entry)
        super().commit()

    def _stored_changes(self, entry: ListEntry | None) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield what a changed entry writes, by what follows the key in the store key."""
        if isinstance(entry, LongList):
            if entry.added:
                yield b"", Head(entry.head.first, entry.head.end + 1, self._latest(entry.head.last_ms, entry.added)).pack()
                yield segment_suffix(entry.head.end), self._join(entry.added)
            return
        end, payloads = _replacing(entry)
        if isinstance(entry, ReplacedList):
            for number in range(entry.head.first, end):
                yield segment_suffix(number), None
        if not payloads:
            yield b"", None
        elif self._is_short(payloads):
            yield b"", self._join(payloads)
        else:
            yield b"", Head(end, end + 1, self._latest(0, payloads)).pack()
            yield segment_suffix(end), self._join(payloads)

    def _committed(self, entry: ListEntry | None) -> ListEntry | None:
        """Return the entry of a key once its changes are stored."""
        if isinstance(entry, LongList):
            return entry.committed(self._latest(entry.head.last_ms, entry.added)) if entry.added else entry
        end, payloads = _replacing(entry)
        if not payloads:
            return None
        if self._is_short(payloads):
            return payloads
        return LongList(Head(end, end + 1, self._latest(0, payloads)), payloads, size_of_payloads(payloads))

    def _is_short(self, payloads: list[bytes]) -> bool:
        return sum(map(len, payloads)) + 4 * len(payloads) <= self.short_bytes

    def _latest(self, last_ms: int, payloads: list[bytes]) -> int:  # noqa: ARG002  for states that expire
        """Return the latest expiry of elements, of which those before have ``last_ms``."""
        return NEVER_MS

    def _kept(self) -> LongList | list[bytes]:
        """Return the entry of the current key that adding more keeps."""
        return self._entry() or []

    def _payloads(self) -> list[bytes]:
        """Return the elements of the current key, those of a long list after reading them."""
        entry: ListEntry | None = self._entry()
        if isinstance(entry, LongList):
            if entry.loaded is None:
                entry.loaded = self._load_segments(entry.head)
                entry.loaded_bytes = size_of_payloads(entry.loaded)
                self._cached_payload_bytes += entry.loaded_bytes
            return entry.loaded + entry.added
        if isinstance(entry, ReplacedList):
            return entry.payloads
        return entry or []

    def _load_segments(self, head: Head) -> list[bytes]:
        ident = self._context.ident
        if ident is None:
            raise no_current_key()
        key = ident[:2] + self._heads[len(ident)] + ident[2:]
        found = list(self._layers.scan(key + segment_suffix(head.first), key + segment_suffix(head.end)))
        return [payload for _, data in found for payload in self._split(data)]

    def _replace(self, payloads: list[bytes]) -> None:
        """Make the current key's list this one."""
        ident = self._context.ident
        if ident is None:
            raise no_current_key()
        before = self._entry()
        if isinstance(before, LongList | ReplacedList):
            self._changed[ident] = ReplacedList(before.head, payloads)
        elif payloads:
            self._changed[ident] = payloads
        else:
            self._remove()
            return
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
        except (ValueError, IndexError, struct.error, OverflowError) as error:
            raise CorruptDataError("damaged element", path=self._where) from error

    def _restore(self, data: bytes) -> LongList | list[bytes]:
        return LongList(Head.unpack(data, self._where)) if is_head(data) else self._split(data)

    def _split(self, data: bytes) -> list[bytes]:
        if data[:1] != self.version:
            raise CorruptDataError("not a list", path=self._where, expected=f"version {self.version[0]}")
        try:
            return ListTypeInfo.split(data[1:])
        except (ValueError, struct.error) as error:
            raise CorruptDataError("damaged list", path=self._where) from error

    def _join(self, payloads: list[bytes]) -> bytes:
        return self.version + ListTypeInfo.join(payloads)


def _replacing(entry: list[bytes] | ReplacedList | None) -> tuple[int, list[bytes]]:
    """Return the number of the first segment that a whole list may use, and the list."""
    return (entry.head.end, entry.payloads) if isinstance(entry, ReplacedList) else (0, entry or [])
