"""ListSchemaReader: reads what an evolved list state has stored: short lists, heads and segments, each with its own schema."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import compress
from typing import Final, NamedTuple

from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.segments import NEVER_MS, ListHead, is_head, is_segment, pack_segment
from statefulspark.state.encoding.values import EXPIRING_LIST, PLAIN, unreadable
from statefulspark.state.evolution.schema_reader import SchemaReader, StoredPart
from statefulspark.state.types.composites import ListTypeInfo

_EXPIRY: Final = struct.Struct(">q")
_PLAIN: Final = bytes([PLAIN])
_EXPIRING: Final = bytes([EXPIRING_LIST])


class StoredElements(NamedTuple):
    """A short list, a head or a segment, as far as it can be read without decoding elements."""

    elements: list[StoredPart]
    """Of a head those of its tail."""
    segments: StoredPart | None
    """When the last element of the segments expires. None if it is no head."""


class ListSchemaReader(SchemaReader):
    """Reads the entries of one list state, whatever schema wrote them; arguments as of `SchemaReader`."""

    __slots__ = ()

    def current(self, data: bytes) -> bytes | None:
        """Return what the current schema would have written, without the prefix; errors as of `SchemaReader.current`.

        None means that all elements are gone. A head whose segments are gone becomes a short list of its tail: like the segments of a list that has
        expired, they are no part of a list any more, and the sweep removes them.
        """
        number, inner = self._split(data)
        if number == self._current:
            return inner
        if is_segment(inner):
            elements = self._current_list(number, inner[1:])
            return None if elements is None else pack_segment(elements)
        if not is_head(inner):
            return self._current_list(number, inner)
        head = ListHead.unpack(inner, self.where)
        tail, segments = self._current_list(number, head.tail), self._segments(number, head)
        if segments.gone:
            return tail
        last_ms = NEVER_MS if segments.expiry_ms is None else segments.expiry_ms
        return ListHead(head.segments, last_ms, self._list_of([]) if tail is None else tail).pack()

    def stored(self, data: bytes) -> StoredElements:
        """Return the elements with the expiries they have under the current schema. Decodes no element.

        Raises:
            CorruptDataError: The bytes are damaged.
        """
        number, inner = self._split(data)
        head = ListHead.unpack(inner, self.where) if is_head(inner) else None
        elements = head.tail if head is not None else inner[1:] if is_segment(inner) else inner
        return StoredElements(self._elements(number, elements), None if head is None else self._segments(number, head))

    def shortened(self, data: bytes, kept: Iterable[bool]) -> bytes:
        """Return an entry with only the elements that are kept, as its schema wrote them."""
        _, inner = self._split(data)
        head = ListHead.unpack(inner, self.where) if is_head(inner) else None
        elements = head.tail if head is not None else inner[1:] if is_segment(inner) else inner
        left = elements[:1] + ListTypeInfo.join(list(compress(self._payloads(elements), kept)))
        return data[: len(data) - len(elements)] + left

    def _segments(self, number: int, head: ListHead) -> StoredPart:
        expiry_ms = head.last_ms if self._schemas[number].ttl_ms is not None else None
        return self._followed(StoredPart(expiry_ms, False, None), number)

    def _elements(self, number: int, data: bytes) -> list[StoredPart]:
        if self._schemas[number].ttl_ms is None:
            if data[:1] != _PLAIN:
                raise unreadable(data, self.where)
            part = self._followed(StoredPart(None, False, None), number)
            return [part._replace(payload=payload) for payload in self._payloads(data)]
        if data[:1] != _EXPIRING:
            raise unreadable(data, self.where)
        payloads = self._payloads(data)
        if any(len(payload) < _EXPIRY.size for payload in payloads):
            raise self._damaged()
        return [self._followed(StoredPart(_EXPIRY.unpack_from(payload)[0], False, payload[_EXPIRY.size :]), number) for payload in payloads]

    def _payloads(self, data: bytes) -> list[bytes]:
        try:
            return ListTypeInfo.split(data[1:])
        except (ValueError, struct.error) as error:
            raise CorruptDataError("damaged list", path=self.where) from error

    def _current_list(self, number: int, data: bytes) -> bytes | None:
        """Return a list of a schema as the current one would have written it; None if no element is left."""
        parts = [part for part in self._elements(number, data) if not part.gone]
        if not parts:
            return None
        payloads = [self._reencoded(number, part.payload or b"") for part in parts]
        if self.expires:
            payloads = [_EXPIRY.pack(part.expiry_ms or 0) + payload for part, payload in zip(parts, payloads, strict=True)]
        return self._list_of(payloads)

    def _list_of(self, payloads: list[bytes]) -> bytes:
        return (_EXPIRING if self.expires else _PLAIN) + ListTypeInfo.join(payloads)


def reader_of(info: StateInfo, *, converts: bool = True) -> SchemaReader | None:
    """Return what reads the values of a state that has evolved, None for one that has not; arguments as in `SchemaReader`."""
    if not info.schemas:
        return None
    return (ListSchemaReader if info.kind == "list" else SchemaReader)(info, converts=converts)
