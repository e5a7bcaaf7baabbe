"""KeyedListState: ListState on top of a table. A short list is one stored value, a long one a head and segments.

Appending changes the head, which has the last elements of the list, and adds a segment when they have become many. It neither reads nor
writes the other segments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.api.states import ListState
from statefulspark.state.encoding.segments import (
    NEVER_MS,
    ListHead,
    check_complete,
    is_head,
    pack_segment,
    segment_key,
    segment_number,
    unpack_segment,
)
from statefulspark.state.encoding.values import PLAIN, unreadable
from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.combining import none_added
from statefulspark.state.tables.key_context import KeyContext, no_current_key
from statefulspark.state.tables.list_entries import (
    Layout,
    ListChange,
    Loaded,
    LongList,
    encoded_size,
    lay_out,
    memory_size,
    size_of_entry,
    size_of_payloads,
)
from statefulspark.state.tables.point import PointTable
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.composites import ListTypeInfo

SHORT_BYTES: Final = 1024
"""Largest size of a list that is one stored value."""
TAIL_BYTES: Final = 256
"""Largest size of what an append to a long list writes beside the appended elements and the keys. Segments are larger, so a list has few, and
their keys take few bytes."""
SEGMENT_BYTES: Final = 64 << 10
"""A list that is written at once gets segments of this size: small enough to be swept one by one, large enough to be read fast."""
_SEGMENTS_MAX: Final = (1 << 64) - 1
_VERSION: Final = bytes([PLAIN])


class KeyedListState(PointTable, ListState[Any]):
    """A list of elements per key.

    A cached entry is a list of the elements' payloads or a `LongList`, a changed one a `ListChange`. Adding encodes the new elements only,
    and what `get` gives are copies.

    Args:
        context: The backend's.
        layers: The backend's.
        state_id: Of the state.
        element: Type of the elements.
        where: Names the state in errors.
        on_segmented: Called before the first segment is written, None if it has been called in an earlier life of the state. Raises if the
            state's description cannot be changed.
    """

    __slots__ = ("_element", "_on_segmented", "_prefix", "_reader", "_where", "segment_bytes", "short_bytes", "tail_bytes")

    version = _VERSION

    def __init__(
        self,
        context: KeyContext,
        layers: Layers,
        state_id: int,
        *,
        element: TypeInformation,
        where: str,
        on_segmented: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(context, layers, state_id, restored=self._restore, stored=self._join, entry_bytes=None, sizer=size_of_entry)
        self._element = element
        self._where = where
        self._on_segmented = on_segmented
        self._prefix = b""
        self._reader: SchemaReader | None = None
        self.short_bytes = SHORT_BYTES
        self.tail_bytes = TAIL_BYTES
        self.segment_bytes = SEGMENT_BYTES

    def read_with(self, reader: SchemaReader) -> None:
        super().read_with(reader)
        self._prefix = reader.prefix
        self._reader = reader

    def get(self) -> Iterator[Any]:
        return iter(self._decoded(self._payloads()))

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        payloads = [self._payload(value) for value in values]
        ident = self._ident()
        if not payloads:
            return
        encoded_bytes = encoded_size(payloads)
        size_bytes = memory_size(encoded_bytes, len(payloads))
        change = self._changed.get(ident)
        if change is None:
            change = self._appended(ident)
            size_bytes += change.size_bytes
        if self._on_segmented is not None and (change.segments or change.encoded_bytes + encoded_bytes > self.short_bytes):
            self._declare_segmented()
        change.extend(payloads, encoded_bytes)
        self._changed[ident] = change
        self._grown(size_bytes)

    def update(self, values: Iterable[Any]) -> None:
        self._replace([self._payload(value) for value in values])

    def clear(self) -> None:
        self._replace([])

    def changes(self) -> list[Change]:
        found: list[Change] = []
        prefix = self._prefix
        for ident, change in self._changed.items():
            if ident is not None:
                key = self._head_key(ident)
                if self._stays_short(change):
                    found.append((key, prefix + self._join(change.payloads) if change.payloads else None))
                elif self._changes_tail(change):
                    found.append((key, prefix + ListHead(change.segments, change.last_ms, self._join(change.payloads)).pack()))
                else:
                    found += self._stored_changes(key, change)
        return found

    def commit(self) -> None:
        changed, self._changed = self._changed, {}
        self._changed_payload_bytes = 0
        young = self._young
        for ident, change in changed.items():
            if self._stays_short(change):
                young[ident] = change.payloads or None
                self._cached_payload_bytes += change.size_bytes
            elif self._changes_tail(change) and isinstance(cached := young.get(ident), LongList):
                young[ident] = LongList(change.segments, change.last_ms, change.payloads, cached.loaded)
                self._cached_payload_bytes += change.size_bytes
            elif ident is not None:
                young[ident] = self._committed(ident, change)

    def has_entry(self, ident: bytes, *, stored: bool) -> bool:
        change = self._changed.get(ident)
        return stored if change is None else bool(change.payloads or change.segments)

    def _payloads(self) -> list[bytes]:
        """Return the elements of the current key; not to be modified."""
        ident = self._ident()
        change = self._changed.get(ident)
        if change is not None and not change.segments:
            payloads: list[bytes] = change.payloads
            return payloads
        stored = self._stored_entry(ident)
        if isinstance(stored, LongList):
            return [*self._segments(ident, stored).payloads, *(stored.tail if change is None else change.payloads)]
        return stored or []

    def _replace(self, payloads: list[bytes]) -> None:
        """Make the current key's list this one."""
        ident = self._ident()
        change = self._changed.get(ident)
        replaced = change.replaced if change is not None and not change.segments else self._stored_segments(ident)
        if not payloads and not replaced and not self._is_stored(ident):
            # Nothing is stored: forgetting the change saves a useless delete in the changelog and the store.
            self._changed.pop(ident, None)
            return
        change = ListChange(payloads, replaced=replaced)
        if self._on_segmented is not None and change.encoded_bytes > self.short_bytes:
            self._declare_segmented()
        self._changed[ident] = change
        self._grown(change.size_bytes)

    def _declare_segmented(self) -> None:
        """Let the state's description say that there are segments; before the change, so that none is written if this fails."""
        if self._on_segmented is not None:
            self._on_segmented()
            self._on_segmented = None

    def _grown(self, size_bytes: int) -> None:
        """Record that changes take so much more memory."""
        self._changed_payload_bytes += size_bytes
        self._context.grow(size_bytes)

    def _stays_short(self, change: ListChange) -> bool:
        """Return True for a list without segments, before and after the change: most lists, which take no detour."""
        return not change.segments and not change.replaced and change.encoded_bytes <= self.short_bytes

    def _changes_tail(self, change: ListChange) -> bool:
        """Return True for a list whose segments stay as they are: most appends to long lists."""
        return bool(change.segments) and change.encoded_bytes <= self.tail_bytes

    def _stored_changes(self, key: bytes, change: ListChange) -> Iterator[Change]:
        """Yield what a change writes."""
        prefix = self._prefix
        written, tail = self._laid_out(change)
        end = change.segments + len(written)
        for number, payloads in enumerate(written, change.segments):
            yield segment_key(key, number), prefix + pack_segment(self._join(payloads))
        for number in change.replaced:
            if number >= end:
                yield segment_key(key, number), None
        if end:
            yield key, prefix + ListHead(end, self._latest(change.last_ms, written), self._join(tail)).pack()
        else:
            yield key, prefix + self._join(tail) if tail else None

    def _committed(self, ident: bytes, change: ListChange) -> list[bytes] | LongList | None:
        """Return the entry of a change that is stored now, and count the memory by which the cache grows."""
        written, tail = self._laid_out(change)
        end = change.segments + len(written)
        self._cached_payload_bytes += size_of_payloads(tail)
        if not end:
            return tail or None
        new = [payload for payloads in written for payload in payloads]
        loaded, counted_bytes = Loaded(), 0
        if change.segments:
            cached = self._young[ident] if ident in self._young else self._old.get(ident)
            if not isinstance(cached, LongList) or cached.loaded is None:
                return LongList(end, self._latest(change.last_ms, written), tail)
            loaded = cached.loaded
            if ident in self._young:
                counted_bytes = loaded.size_bytes
        loaded.extend(new, range(change.segments, end))
        entry = LongList(end, self._latest(change.last_ms, written), tail)
        if loaded.size_bytes <= self._context.cached_entry_bytes_max:
            entry.loaded = loaded
            self._cached_payload_bytes += loaded.size_bytes - counted_bytes
        return entry

    def _laid_out(self, change: ListChange) -> Layout:
        return lay_out(change, short_bytes=self.short_bytes, tail_bytes=self.tail_bytes, segment_bytes=self.segment_bytes)

    def _latest(self, last_ms: int, written: list[list[bytes]]) -> int:  # noqa: ARG002  for states that expire
        """Return the latest expiry of elements in segments, if ``last_ms`` is that of those before ``written``."""
        return NEVER_MS

    def _kept(self, payloads: list[bytes]) -> list[bytes]:
        """Return a copy of stored elements, of which adding more may leave out what has expired."""
        return payloads.copy()

    def _appended(self, ident: bytes) -> ListChange:
        """Return a change to which elements can be added. The cached entry stays as it is, because a rollback returns to it."""
        stored = self._stored_entry(ident)
        if isinstance(stored, LongList):
            return ListChange(self._kept(stored.tail), segments=stored.segments, last_ms=stored.last_ms)
        return ListChange(self._kept(stored or []))

    def _stored_entry(self, ident: bytes) -> list[bytes] | LongList | None:
        """Return the entry of a key without what the batch has changed since it last spilled."""
        if ident in self._young:
            entry: list[bytes] | LongList | None = self._young[ident]
        else:
            entry = self._load(ident)
        return entry

    def _segments(self, ident: bytes, stored: LongList) -> Loaded:
        """Return the segments of a list, and keep them if the cache has room for them."""
        if stored.loaded is not None:
            return stored.loaded
        key = self._head_key(ident)
        loaded = Loaded()
        for each, data in self._layers.scan(segment_key(key, 0), segment_key(key, stored.segments)):
            current = data if self._reader is None else self._reader.current(data)
            payloads = [] if current is None else self._split(unpack_segment(current, self._where))
            loaded.extend(payloads, (segment_number(key, each),))
        if self._reader is None or not self._reader.may_have_expired:
            check_complete(len(loaded.numbers), stored.segments, stored.last_ms, self._where)
        if loaded.size_bytes <= self._context.cached_entry_bytes_max:
            stored.loaded = loaded
            if self._young.get(ident) is stored:
                self._cached_payload_bytes += loaded.size_bytes
                self._context.grow(loaded.size_bytes)
        return loaded

    def _stored_segments(self, ident: bytes) -> list[int]:
        """Return the numbers of the segments that a list has. Those that a sweep has removed would cost a delete each."""
        try:
            stored = self._stored_entry(ident)
        except InvalidInputError:
            # An element that does not fit, or whose class is gone: a function that does not read the list can replace it.
            segments = _SEGMENTS_MAX
        else:
            if not isinstance(stored, LongList):
                return []
            if stored.loaded is not None:
                return stored.loaded.numbers.copy()
            segments = stored.segments
        key = self._head_key(ident)
        return [segment_number(key, each) for each, _ in self._layers.scan(segment_key(key, 0), segment_key(key, segments))]

    def _is_stored(self, ident: bytes) -> bool:
        try:
            return self._stored_entry(ident) is not None
        except InvalidInputError:
            return True

    def _ident(self) -> bytes:
        ident = self._context.ident
        if ident is None:
            raise no_current_key()
        return ident

    def _head_key(self, ident: bytes) -> bytes:
        return ident[:2] + self._heads[len(ident)] + ident[2:]

    def _is_long(self, payloads: list[bytes]) -> bool:
        return encoded_size(payloads) > self.short_bytes

    def _payload(self, value: Any) -> bytes:
        if value is None:
            raise none_added(self._where)
        try:
            return self._element.encode(value)
        except InvalidInputError as error:
            raise error.named(self._where) from error

    def _decoded(self, payloads: list[bytes]) -> list[Any]:
        decode = self._element.decode
        try:
            return [decode(payload) for payload in payloads]
        except InvalidInputError as error:
            raise error.named(self._where) from error
        except (ValueError, IndexError, struct.error, OverflowError) as error:
            raise CorruptDataError("damaged element", path=self._where) from error

    def _restore(self, data: bytes) -> LongList | list[bytes]:
        if not is_head(data):
            return self._split(data)
        head = ListHead.unpack(data, self._where)
        return LongList(head.segments, head.last_ms, self._split(head.tail))

    def _split(self, data: bytes) -> list[bytes]:
        if data[:1] != self.version:
            raise unreadable(data, self._where)
        try:
            return ListTypeInfo.split(data[1:])
        except (ValueError, struct.error) as error:
            raise CorruptDataError("damaged list", path=self._where) from error

    def _join(self, payloads: list[bytes]) -> bytes:
        return self.version + ListTypeInfo.join(payloads)
