"""Layout of long lists: a head under the store key of the list's key, and segments with elements under numbers below it.

A list is the elements of the segments ``first .. end - 1`` that its head names, in order. Other segments are no part of it: their
elements have expired. docs/rfcs/0002-appending-lists.md explains why.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.layout import split_store_key
from statefulspark.state.encoding.values import LIST_HEAD
from statefulspark.state.types.composites import ListTypeInfo

__all__ = ["NEVER_MS", "Head", "is_head", "segment_suffix", "whole_lists"]

NEVER_MS: Final = (1 << 63) - 1
"""Last expiry of a list that does not expire."""
_HEAD: Final = struct.Struct(">BQQq")
_NUMBER: Final = struct.Struct(">Q")


class Head(NamedTuple):
    """What a long list consists of."""

    first: int
    """Number of its first segment."""
    end: int
    """Number after that of its last segment."""
    last_ms: int
    """Latest expiry of an element, ms since the epoch."""

    def pack(self) -> bytes:
        """Return the stored bytes."""
        return _HEAD.pack(LIST_HEAD, *self)

    @classmethod
    def unpack(cls, data: bytes, where: str) -> Head:
        """Read stored bytes for which `is_head` is true.

        Args:
            data: The bytes.
            where: Names the state in errors.

        Raises:
            CorruptDataError: They are damaged.
        """
        try:
            _, first, end, last_ms = _HEAD.unpack(data)
        except struct.error as error:
            raise CorruptDataError("damaged list", path=where) from error
        if first >= end:
            raise CorruptDataError("damaged list", path=where)
        return cls(first, end, last_ms)


def is_head(data: bytes) -> bool:
    """Tell whether a stored value is the head of a long list."""
    return data[:1] == LIST_HEAD.to_bytes()


def segment_suffix(number: int) -> bytes:
    """Return what follows the key in the store key of a segment: eight bytes, so that byte order is the order of numbers."""
    return _NUMBER.pack(number)


def whole_lists(stored: Iterable[tuple[bytes, bytes]], where: str) -> Iterator[tuple[bytes, bytes]]:
    """Join the segments of each list, so that every list is one entry as short ones are.

    Args:
        stored: Entries of a list state in store order, all of each key.
        where: Names the state in errors.

    Raises:
        CorruptDataError: An entry is damaged.
    """
    joined: _Joined | None = None
    for key, data in stored:
        suffix = split_store_key(key).user_key
        if suffix:
            if joined is not None and key == joined.key + suffix:
                joined.add(suffix, data)
            continue
        if joined is not None:
            yield joined.key, joined.whole()
            joined = None
        if is_head(data):
            joined = _Joined(key, Head.unpack(data, where), where)
        else:
            yield key, data
    if joined is not None:
        yield joined.key, joined.whole()


class _Joined:
    """A long list while its segments are read."""

    def __init__(self, key: bytes, head: Head, where: str) -> None:
        self.key = key
        self._head = head
        self._where = where
        self._version = b"\x01"
        self._payloads: list[bytes] = []

    def add(self, suffix: bytes, data: bytes) -> None:
        try:
            (number,) = _NUMBER.unpack(suffix)
            payloads = ListTypeInfo.split(data[1:])
        except (ValueError, struct.error) as error:
            raise CorruptDataError("damaged list", path=self._where) from error
        if self._head.first <= number < self._head.end:
            self._version = data[:1]
            self._payloads += payloads

    def whole(self) -> bytes:
        return self._version + ListTypeInfo.join(self._payloads)
