"""What a table of lists holds for a key: the payloads of a short list, a long list, or what replaces a long list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from statefulspark.state.encoding.segments import Head

__all__ = ["ListEntry", "LongList", "ReplacedList", "size_of_entry", "size_of_payloads"]

_ITEM_BYTES: Final = 48
"""Memory of one element beside its bytes: a place in a list and the head of an object."""


class LongList:
    """A list that is stored as a head and segments, and elements that the running batch adds to it.

    Attributes:
        head: As stored.
        loaded: The stored elements, None until they are read. Shared by the cached entry and the changed one, so never modified before
            the batch is committed.
        loaded_bytes: Memory that they take, so that it need not be counted for each element that is added.
        added: Elements of the running batch; empty in the cache.
    """

    __slots__ = ("added", "head", "loaded", "loaded_bytes")

    def __init__(self, head: Head, loaded: list[bytes] | None = None, loaded_bytes: int = 0) -> None:
        self.head = head
        self.loaded = loaded
        self.loaded_bytes = loaded_bytes
        self.added: list[bytes] = []

    def copy(self) -> LongList:
        """Return the same list, to which elements can be added."""
        return LongList(self.head, self.loaded, self.loaded_bytes)

    def extend(self, payloads: Iterable[bytes]) -> None:
        """Add elements."""
        self.added.extend(payloads)

    def committed(self, last_ms: int) -> LongList:
        """Return the list once the added elements are stored, as one more segment; ``last_ms`` is its latest expiry."""
        head = Head(self.head.first, self.head.end + 1, last_ms)
        if self.loaded is None:
            return LongList(head)
        self.loaded.extend(self.added)
        return LongList(head, self.loaded, self.loaded_bytes + size_of_payloads(self.added))


class ReplacedList:
    """What the running batch puts in the place of a long list.

    Attributes:
        head: Of the stored list, whose segments go.
        payloads: The new elements, none if the list is removed.
    """

    __slots__ = ("head", "payloads")

    def __init__(self, head: Head, payloads: list[bytes]) -> None:
        self.head = head
        self.payloads = payloads

    def extend(self, payloads: Iterable[bytes]) -> None:
        """Add elements."""
        self.payloads.extend(payloads)


ListEntry: TypeAlias = list[bytes] | LongList | ReplacedList


def size_of_payloads(payloads: list[bytes]) -> int:
    """Return the memory that elements take."""
    return len(payloads) * _ITEM_BYTES + sum(map(len, payloads))


def size_of_entry(entry: ListEntry) -> int:
    """Return the memory that an entry takes."""
    if isinstance(entry, LongList):
        return entry.loaded_bytes + size_of_payloads(entry.added)
    return size_of_payloads(entry.payloads if isinstance(entry, ReplacedList) else entry)
