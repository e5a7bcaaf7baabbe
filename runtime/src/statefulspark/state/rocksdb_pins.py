"""PinnedFiles: which table files of one RocksDB instance keep their index and filter blocks in the cache for good. Pure.

This is what gives the high-priority ratio its effect. RocksDB's own pool for index and filter blocks belongs to its LRU cache, whose
ratio rocksdict cannot set (it is always 0.5, and serves any block that was read twice). What can be set, for the files that are
opened from then on, is whether a file pins its index and filter. So files pin while there is room in the reserved part and
do not when it is used up; a file's pins go with the file when a compaction replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

_AGAIN: Final = Fraction(9, 10)
"""Part of the room below which pinning begins again after it ended: each change costs RocksDB a new options file."""


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


class PinnedFiles:
    """Follows the table files of an instance.

    Args:
        pinning: Whether files pin when the instance is opened.

    Attributes:
        pinning: Whether files that are opened from now on pin.
        pinned_bytes: What is pinned, estimated: RocksDB says the sizes of all files together only.
    """

    def __init__(self, *, pinning: bool) -> None:
        self.pinning = pinning
        self.pinned_bytes = 0
        self._files: dict[str, bool] = {}

    def update(self, files: Iterable[TableFile], metadata: Metadata, room_bytes: int) -> bool:
        """Take in the files there are now, and decide about those to come.

        Args:
            files: All live table files.
            metadata: Of all of them together.
            room_bytes: What may be pinned.

        Returns:
            Whether ``pinning`` has changed: the caller tells RocksDB.
        """
        live = list(files)
        # Those not seen before were opened since the last update, under what was decided then.
        self._files = {file.name: self._files.get(file.name, self.pinning) for file in live}
        pinned = [file for file in live if self._files[file.name]]
        self.pinned_bytes = _share(metadata.index_bytes, (file.size_bytes for file in pinned), (file.size_bytes for file in live)) + _share(
            metadata.filter_bytes, (file.entries for file in pinned), (file.entries for file in live)
        )
        before = self.pinning
        if self.pinned_bytes >= room_bytes:
            self.pinning = False
        elif self.pinned_bytes < room_bytes * _AGAIN:
            self.pinning = True
        return self.pinning is not before


def _share(total: int, part: Iterable[int], whole: Iterable[int]) -> int:
    denominator = sum(whole)
    return total * sum(part) // denominator if denominator else 0
