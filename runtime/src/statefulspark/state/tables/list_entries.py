"""Entries of a table of lists: a stored list, and its changes in the running batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from statefulspark.state.tables.table import ENTRY_BYTES

_ITEM_BYTES: Final = 48
"""Memory of one element beside its bytes: a place in a list and the head of an object."""
_LENGTH_BYTES: Final = 4
"""Stored before each element."""


class Loaded:
    """The segments of a stored list in memory.

    Attributes:
        payloads: Their elements. Modified only when a batch that has appended is committed.
        numbers: The numbers of the segments that are stored.
        size_bytes: Memory that they take.
    """

    __slots__ = ("numbers", "payloads", "size_bytes")

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.numbers: list[int] = []
        self.size_bytes = 0

    def extend(self, payloads: Sequence[bytes], numbers: Sequence[int]) -> None:
        """Add segments that are stored after these."""
        self.payloads += payloads
        self.numbers += numbers
        self.size_bytes += size_of_payloads(payloads) + len(numbers) * _ITEM_BYTES


class LongList:
    """A list that is stored as a head and segments.

    Attributes:
        segments: How many segments it has, counting those whose elements have expired.
        last_ms: Latest expiry of an element in a segment.
        tail: The elements after the segments. Never modified.
        loaded: The segments if they are in memory.
    """

    __slots__ = ("last_ms", "loaded", "segments", "tail")

    def __init__(self, segments: int, last_ms: int, tail: list[bytes], loaded: Loaded | None = None) -> None:
        self.segments = segments
        self.last_ms = last_ms
        self.tail = tail
        self.loaded = loaded


class ListChange:
    """A list as the running batch leaves it: segments that are stored, and elements after them.

    Attributes:
        segments: How many stored segments stay, counting those whose elements have expired; 0 if the batch replaces the list.
        last_ms: Latest expiry of an element in them.
        payloads: The elements after them.
        encoded_bytes: Size of these elements in a stored list.
        replaced: Numbers of the stored segments that go.
    """

    __slots__ = ("encoded_bytes", "last_ms", "payloads", "replaced", "segments")

    def __init__(self, payloads: list[bytes], *, segments: int = 0, last_ms: int = 0, replaced: Sequence[int] = ()) -> None:
        self.segments = segments
        self.last_ms = last_ms
        self.payloads = payloads
        self.encoded_bytes = encoded_size(payloads)
        self.replaced = replaced

    def extend(self, payloads: Sequence[bytes], encoded_bytes: int) -> None:
        """Add elements of so many bytes in a stored list."""
        self.payloads += payloads
        self.encoded_bytes += encoded_bytes

    @property
    def size_bytes(self) -> int:
        """Memory that it takes. A segment that goes becomes a change of its own when the batch is encoded."""
        return memory_size(self.encoded_bytes, len(self.payloads)) + len(self.replaced) * ENTRY_BYTES


class Layout(NamedTuple):
    """Stored form of a `ListChange`."""

    written: list[list[bytes]]
    """Elements of each new segment."""
    tail: list[bytes]
    """The other elements: in the head, or a short list."""


def lay_out(change: ListChange, *, short_bytes: int, tail_bytes: int, segment_bytes: int) -> Layout:
    """Return the stored form of a list.

    Args:
        change: The list.
        short_bytes: Largest size of a short list.
        tail_bytes: Largest size of a tail. All segments are larger, so their number is bounded by the size of the list.
        segment_bytes: A segment ends with the element that makes it so large.
    """
    if change.encoded_bytes <= (tail_bytes if change.segments else short_bytes):
        return Layout([], change.payloads)
    pieces: list[list[bytes]] = [[]]
    piece_bytes = 0
    for payload in change.payloads:
        if piece_bytes >= segment_bytes:
            pieces.append([])
            piece_bytes = 0
        pieces[-1].append(payload)
        piece_bytes += _LENGTH_BYTES + len(payload)
    tail = pieces.pop() if piece_bytes <= tail_bytes else []
    return Layout(pieces, tail)


def size_of_payloads(payloads: Sequence[bytes]) -> int:
    """Return the memory that elements take."""
    return memory_size(encoded_size(payloads), len(payloads))


def memory_size(encoded_bytes: int, count: int) -> int:
    """Return the memory of so many elements, which take ``encoded_bytes`` in a stored list."""
    return encoded_bytes + count * (_ITEM_BYTES - _LENGTH_BYTES)


def encoded_size(payloads: Sequence[bytes]) -> int:
    """Return the size of elements in a stored list."""
    return len(payloads) * _LENGTH_BYTES + sum(map(len, payloads))


def size_of_entry(entry: list[bytes] | LongList | ListChange) -> int:
    """Return the memory that an entry takes."""
    if isinstance(entry, LongList):
        return size_of_payloads(entry.tail) + (entry.loaded.size_bytes if entry.loaded is not None else 0)
    if isinstance(entry, ListChange):
        return entry.size_bytes
    return size_of_payloads(entry)
