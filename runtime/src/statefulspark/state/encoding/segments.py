"""Layout of long lists: a head under the store key of the list's key, and segments with most of its elements after it.

Head: ``6 | segments u64 | last expiry i64 | tail``. Segment, under the head's store key and its number u64: ``8 | list``. The tail and the
list are what a short list is stored as, with their version. The list is the elements of the segments ``0 .. segments - 1`` in order, then
those of the tail. In a state that has evolved, heads and segments begin with the number of their schema, as all values do (`evolution.list_reader`). docs/rfcs/0002-appending-lists.md explains why.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.values import EVOLVED, EVOLVED_BYTES, EXPIRING_LIST, LIST_HEAD, LIST_SEGMENT, PLAIN, unreadable
from statefulspark.state.types.composites import ListTypeInfo

Scan = Callable[[bytes, bytes], Iterator[tuple[bytes, bytes]]]
"""Yields the entries from a store key up to another one, in order."""

NEVER_MS: Final = (1 << 63) - 1
"""Last expiry of elements that do not expire."""
_HEAD: Final = struct.Struct(">BQq")
_NUMBER: Final = struct.Struct(">Q")
_HEAD_VERSION: Final = bytes([LIST_HEAD])
_SEGMENT_VERSION: Final = bytes([LIST_SEGMENT])
_EVOLVED_VERSION: Final = bytes([EVOLVED])


class CurrentBytes(Protocol):
    """Reader of the entries of a list state that has evolved (`evolution.list_reader`)."""

    @property
    def may_have_expired(self) -> bool:
        """True if elements of an earlier schema may be gone: then segments may be missing."""

    def current(self, data: bytes) -> bytes | None:
        """Return the entry as the current schema writes it; None if all elements are gone."""


class ListHead(NamedTuple):
    """Value under the store key of a long list."""

    segments: int
    """Number of segments that were written since the list began. Those whose elements have expired may be gone."""
    last_ms: int
    """Latest expiry of an element in a segment, ms since the epoch."""
    tail: bytes
    """The elements after those of the segments, as a short list is stored."""

    def pack(self) -> bytes:
        """Return the stored bytes."""
        return _HEAD.pack(LIST_HEAD, self.segments, self.last_ms) + self.tail

    @classmethod
    def unpack(cls, data: bytes, where: str) -> ListHead:
        """Read stored bytes for which `is_head` is true.

        Args:
            data: The bytes.
            where: Names the state in errors.

        Raises:
            CorruptDataError: They are damaged.
        """
        if len(data) <= _HEAD.size:
            raise CorruptDataError("damaged list", path=where)
        _, segments, last_ms = _HEAD.unpack_from(data)
        return cls(segments, last_ms, data[_HEAD.size :])


def is_head(data: bytes) -> bool:
    """Return True if a stored value, without the number of a schema, is the head of a long list."""
    return data[:1] == _HEAD_VERSION


def is_segment(data: bytes) -> bool:
    """Return True if a stored value, of any schema, is a segment, which is no entry of its own but a part of a list."""
    version = data[:1]
    return version == _SEGMENT_VERSION or (version == _EVOLVED_VERSION and data[EVOLVED_BYTES : EVOLVED_BYTES + 1] == _SEGMENT_VERSION)


def segment_key(head_key: bytes, number: int) -> bytes:
    """Return the store key of a segment; the byte order of the keys is that of the numbers."""
    return head_key + _NUMBER.pack(number)


def segment_number(head_key: bytes, key: bytes) -> int:
    """Return the number in a segment's store key, which begins with the head's."""
    return int.from_bytes(key[len(head_key) :], "big")


def pack_segment(elements: bytes) -> bytes:
    """Return the stored bytes of a segment from those of a short list with its elements."""
    return _SEGMENT_VERSION + elements


def unpack_segment(data: bytes, where: str) -> bytes:
    """Return the bytes of a short list with a segment's elements.

    Raises:
        CorruptDataError: It is no segment.
    """
    if data[:1] != _SEGMENT_VERSION:
        raise unreadable(data, where)
    return data[1:]


def whole_list(key: bytes, data: bytes, scan: Scan, where: str, reader: CurrentBytes | None = None) -> bytes | None:
    """Put a list together, so that a long one is one value as a short one is.

    Args:
        key: Store key of the list.
        data: What is stored there.
        scan: Of the store that has the segments.
        where: Names the state in errors.
        reader: Reads what earlier schemas of the state wrote; None if it has not evolved.

    Returns:
        The bytes of the list under the current schema, without its number; None if all elements are gone.

    Raises:
        CorruptDataError: A part of the list is damaged or missing.
    """
    current = data if reader is None else reader.current(data)
    if current is None or not is_head(current):
        return current
    head = ListHead.unpack(current, where)
    stored = [each for _, each in scan(segment_key(key, 0), segment_key(key, head.segments))]
    if reader is None or not reader.may_have_expired:
        check_complete(len(stored), head.segments, head.last_ms, where)
    segments = stored if reader is None else [each for each in map(reader.current, stored) if each is not None]
    parts = [*(unpack_segment(each, where) for each in segments), head.tail]
    version = head.tail[:1]
    if version not in (bytes([PLAIN]), bytes([EXPIRING_LIST])) or any(part[:1] != version for part in parts):
        raise unreadable(head.tail, where)
    try:
        return version + ListTypeInfo.join([element for part in parts for element in ListTypeInfo.split(part[1:])])
    except (ValueError, struct.error) as error:
        raise CorruptDataError("damaged list", path=where) from error


def shortened_head(data: bytes, segments: int, where: str) -> bytes:
    """Return the head of a list that ends with its first segments.

    Args:
        data: What is stored under the list's key, of any schema.
        segments: How many to keep.
        where: Names the state in errors.

    Raises:
        CorruptDataError: It is damaged.
    """
    start = EVOLVED_BYTES if data[:1] == _EVOLVED_VERSION else 0
    head = ListHead.unpack(data[start:], where)
    return data[:start] + ListHead(segments, head.last_ms, head.tail[:1] + ListTypeInfo.join([])).pack()


def check_complete(found: int, segments: int, last_ms: int, where: str) -> None:
    """Check that ``found`` segments are all that a list has. Only segments of lists that expire may be gone.

    Raises:
        CorruptDataError: A segment is missing.
    """
    if last_ms == NEVER_MS and found != segments:
        raise CorruptDataError("segments of a list are missing", path=where, expected=str(segments), found=str(found))
