"""SortedEntries: sorts any number of store entries in bounded memory, with runs on the local disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from heapq import merge
from pathlib import Path
from typing import Final

from statefulspark.checkpoint.formats.metadata import SlotState
from statefulspark.state.encoding.entries import CANONICAL, PARQUET_ENTRIES_FILE, RECORD_OVERHEAD_BYTES, read_entries, write_entries
from statefulspark.state.encoding.layout import key_group_range_bounds
from statefulspark.state.store.base import StoredEntries
from statefulspark.state.store.open_store import open_snapshot
from statefulspark.state.store.parquet_entries import write_parquet_entries
from statefulspark.storage.local.os_errors import local_disk

Entry = tuple[bytes, bytes]
_BUFFER_BYTES: Final = 32 << 20
_OBJECT_BYTES: Final = 150
"""Memory that Python needs for an entry beside its bytes."""
_FAN_IN: Final = 16
"""Runs that are merged at once; each has a buffer of 1 MiB while it is read."""


class SortedEntries:
    """Takes entries in any order and yields them in the order of their keys. Entries with equal keys come out in any order.

    Args:
        folder: Exists and is empty. Its files need as much space as the entries, and once more while runs are merged.
        buffer_bytes: Entries that are sorted in memory, at least 1.

    Raises (any method): UnavailableError if the disk is full or fails.
    """

    def __init__(self, folder: Path, *, buffer_bytes: int = _BUFFER_BYTES) -> None:
        self._folder = folder
        self._buffer_bytes = buffer_bytes
        self._buffer: list[Entry] = []
        self._bytes = 0
        self._levels: list[list[Path]] = []
        """Runs by how often their entries have been merged, so that each entry is merged few times."""
        self._runs = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Take an entry."""
        self._buffer.append((key, value))
        self._bytes += len(key) + len(value) + RECORD_OVERHEAD_BYTES + _OBJECT_BYTES
        if self._bytes >= self._buffer_bytes:
            self._buffer.sort()
            self._write(0, iter(self._buffer))
            self._buffer, self._bytes = [], 0

    def add_runs(self, entries: Iterator[Entry]) -> None:
        """Take many entries that are mostly in order: wherever a key is less than the one before, another run begins."""
        ahead = next(entries, None)

        def run() -> Iterator[Entry]:
            nonlocal ahead
            last = b""
            while ahead is not None and ahead[0] >= last:
                last = ahead[0]
                yield ahead
                ahead = next(entries, None)

        while ahead is not None:
            self._write(0, run())

    def __iter__(self) -> Iterator[Entry]:
        """Yield all entries in the order of their keys; nothing may be added any more.

        Raises:
            CorruptDataError: A run on the disk is damaged.
        """
        self._buffer.sort()
        runs = [read_entries(path) for level in self._levels for path in level]
        return merge(*runs, self._buffer)

    def _write(self, level: int, entries: Iterator[Entry]) -> None:
        if level == len(self._levels):
            self._levels.append([])
        path = self._folder / f"run-{self._runs}"
        self._runs += 1
        with local_disk():
            write_entries(path, entries)
        self._levels[level].append(path)
        if len(self._levels[level]) == _FAN_IN:
            merged, self._levels[level] = self._levels[level], []
            self._write(level + 1, merge(*map(read_entries, merged)))
            for each in merged:
                each.unlink()


@contextmanager
def sorted_entries() -> Iterator[SortedEntries]:
    """Make a `SortedEntries` in a temporary folder, which is deleted afterwards."""
    with local_disk(), tempfile.TemporaryDirectory(prefix="statefulspark-sort-") as name:
        yield SortedEntries(Path(name))


class SlotBySlot:
    """Hands out sorted entries slot by slot; each entry begins with its key group.

    Args:
        entries: In the order of their keys.
    """

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._next = next(entries, None)

    def of(self, slot: SlotState) -> Iterator[Entry]:
        """Yield the entries of a slot. Slots are taken in their order, and each is exhausted."""
        _, end = key_group_range_bounds(slot.first, slot.last)
        while self._next is not None and self._next[0] < end:
            yield self._next
            self._next = next(self._entries, None)


@contextmanager
def written_entries(entries: Iterator[Entry]) -> Iterator[StoredEntries]:
    """Write sorted entries to a temporary file and open them; errors as of `write_parquet_entries`."""
    with local_disk(), tempfile.TemporaryDirectory(prefix="statefulspark-entries-") as name:
        write_parquet_entries(Path(name) / PARQUET_ENTRIES_FILE, entries)
        with closing(open_snapshot(CANONICAL, Path(name))) as store:
            yield store
