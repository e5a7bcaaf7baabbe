"""MetadataPinning: decides which table files of a RocksDB instance pin their index and filter blocks in the cache. Pure.

This implements the high-priority pool ratio. RocksDB's own pool for index and filter blocks belongs to its LRU cache, whose
ratio rocksdict cannot set (it is always 0.5, and serves any block that was read twice). Whether a file pins its index and filter blocks
can be set, but only for files that are opened afterwards. So new files pin while the reserved part of the cache has space, and
stop pinning when it is full. When a compaction replaces a file, its pinned blocks are released.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

_AGAIN: Final = Fraction(9, 10)
"""Fraction of the capacity below which pinning resumes: each change costs RocksDB a new options file."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table file.

    Attributes:
        name: Never used again by another file.
        size_bytes: On disk.
        entries: Keys in it, deleted ones included.
    """

    name: str
    size_bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """Index and filter blocks of all table files together.

    Attributes:
        index_bytes: Grows with the size of a file.
        filter_bytes: Grows with its entries.
    """

    index_bytes: int
    filter_bytes: int

    @property
    def size_bytes(self) -> int:
        """All of them."""
        return self.index_bytes + self.filter_bytes


class MetadataPinning:
    """Tracks the table files of an instance.

    Args:
        pinning: True if files pin when the instance is opened.

    Attributes:
        pinning: True if files that are opened from now on pin.
        pinned_bytes: Estimate of the pinned bytes: RocksDB reports only the total of all files.
    """

    def __init__(self, *, pinning: bool) -> None:
        self.pinning = pinning
        self.pinned_bytes = 0
        self._files: dict[str, bool] = {}

    def update(self, files: Iterable[TableFile], metadata: Metadata, capacity_bytes: int) -> bool:
        """Update the set of live files, and decide whether new files pin.

        Args:
            files: All live table files.
            metadata: Of all of them together.
            capacity_bytes: Maximum number of pinned bytes.

        Returns:
            True if ``pinning`` has changed, so that the caller must set RocksDB's option.
        """
        live = list(files)
        # Those not seen before were opened since the last update, under what was decided then.
        self._files = {file.name: self._files.get(file.name, self.pinning) for file in live}
        pinned = [file for file in live if self._files[file.name]]
        self.pinned_bytes = _share(metadata.index_bytes, (file.size_bytes for file in pinned), (file.size_bytes for file in live)) + _share(
            metadata.filter_bytes, (file.entries for file in pinned), (file.entries for file in live)
        )
        before = self.pinning
        if self.pinned_bytes >= capacity_bytes:
            self.pinning = False
        elif self.pinned_bytes < capacity_bytes * _AGAIN:
            self.pinning = True
        return self.pinning is not before


def _share(total: int, part: Iterable[int], whole: Iterable[int]) -> int:
    denominator = sum(whole)
    return total * sum(part) // denominator if denominator else 0
