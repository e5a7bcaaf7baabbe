"""Layout of long lists: a head under the store key of the list's key, and segments with most of its elements after it.

Head: ``6 | segments u64 | last expiry i64 | tail``. Segment, under the head's store key and its number u64: ``8 | list``. The tail and the
list are what a short list is stored as, with their version. The list is the elements of the segments ``0 .. segments - 1`` in order, then
those of the tail. docs/rfcs/0002-appending-lists.md explains why.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.values import EXPIRING_LIST, LIST_HEAD, LIST_SEGMENT, PLAIN, unreadable
from statefulspark.state.types.composites import ListTypeInfo

Scan = Callable[[bytes, bytes], Iterator[tuple[bytes, bytes]]]
"""Yields the entries from a store key up to another one, in order."""

NEVER_MS: Final = (1 << 63) - 1
"""Last expiry of elements that do not expire."""
_HEAD: Final = struct.Struct(">BQq")
_NUMBER: Final = struct.Struct(">Q")
_HEAD_VERSION: Final = bytes([LIST_HEAD])
_SEGMENT_VERSION: Final = bytes([LIST_SEGMENT])


class ListHead(NamedTuple):
    """What is stored under the store key of a long list's key."""

    segments: int
    """How many segments have been written since the list began. Those whose elements have expired may be gone."""
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
    """Return True if a stored value is the head of a long list."""
    return data[:1] == _HEAD_VERSION


def is_segment(data: bytes) -> bool:
    """Return True if a stored value is a segment, which is no entry of its own but a part of a list."""
    return data[:1] == _SEGMENT_VERSION


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
    if not is_segment(data):
        raise unreadable(data, where)
    return data[1:]


def whole_lists(entries: Iterable[tuple[bytes, bytes]], scan: Scan, where: str) -> Iterator[tuple[bytes, bytes]]:
    """Put long lists together, so that each list is one entry as short ones are.

    Args:
        entries: Entries of a list state; segments among them are left out.
        scan: Of the store that has the segments.
        where: Names the state in errors.

    Raises:
        CorruptDataError: A part of a list is damaged or missing.
    """
    for key, data in entries:
        if is_head(data):
            yield key, _whole(key, ListHead.unpack(data, where), scan, where)
        elif not is_segment(data):
            yield key, data


def _whole(key: bytes, head: ListHead, scan: Scan, where: str) -> bytes:
    parts = [unpack_segment(data, where) for _, data in scan(segment_key(key, 0), segment_key(key, head.segments))]
    check_complete(len(parts), head.segments, head.last_ms, where)
    parts.append(head.tail)
    version = head.tail[:1]
    if version not in (bytes([PLAIN]), bytes([EXPIRING_LIST])) or any(part[:1] != version for part in parts):
        raise unreadable(head.tail, where)
    try:
        return version + ListTypeInfo.join([element for part in parts for element in ListTypeInfo.split(part[1:])])
    except (ValueError, struct.error) as error:
        raise CorruptDataError("damaged list", path=where) from error


def check_complete(found: int, segments: int, last_ms: int, where: str) -> None:
    """Check that ``found`` segments are all that a list has. Only segments of lists that expire may be gone.

    Raises:
        CorruptDataError: A segment is missing.
    """
    if last_ms == NEVER_MS and found != segments:
        raise CorruptDataError("segments of a list are missing", path=where, expected=str(segments), found=str(found))
