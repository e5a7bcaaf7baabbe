"""MemoryStore: keeps all entries in process memory, for small states and tests."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from statefulspark.errors import ClosedError, UnavailableError
from statefulspark.state.encoding.entries import read_entries, write_entries
from statefulspark.state.store.base import Change

ENTRIES_FILE: Final = "entries"

_ENTRY_BYTES: Final = 170
"""Memory overhead per entry: a dict entry, two bytes objects and an index slot."""

_SAMPLE_TRIES: Final = 20


class MemoryStore:
    """A `KeyValueStore` in a dict, with a sorted index of its keys that is brought up to date when a scan needs it.

    Args:
        directory: A snapshot to start from; without the file ``entries`` in it, or when None, the store starts empty.

    Raises:
        CorruptDataError: The snapshot is damaged.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._entries: dict[bytes, bytes] = {}
        self._index: list[bytes] = []
        self._unindexed: list[bytes] = []
        self._deleted = 0
        self._closed = False
        if directory is not None and (directory / ENTRIES_FILE).exists():
            self._entries.update(read_entries(directory / ENTRIES_FILE))
            self._index = list(self._entries)

    def get(self, key: bytes) -> bytes | None:
        return self._open().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._open().get, keys))

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        entries = self._open()
        self._bring_up_index()
        index = self._index
        position = bisect_left(index, first)
        while position < len(index):
            key = index[position]
            if key >= end:
                return
            position += 1
            value = entries.get(key)
            if value is not None:
                yield key, value
            if index is not self._index or self._unindexed:
                # The store was written to while the caller held the iterator: find the place again.
                self._bring_up_index()
                index = self._index
                position = bisect_left(index, key + b"\0")

    def write(self, changes: Iterable[Change]) -> None:
        entries = self._open()
        for key, value in changes:
            if value is None:
                if entries.pop(key, None) is not None:
                    self._deleted += 1
            else:
                if key not in entries:
                    self._unindexed.append(key)
                entries[key] = value

    def delete_range(self, first: bytes, end: bytes) -> None:
        self.write([(key, None) for key, _ in list(self.scan(first, end))])

    def snapshot(self, directory: Path) -> float:
        started = time.monotonic()
        # list() of a dict is one step under the interpreter lock: the writer cannot come between.
        entries = list(self._open().items())
        entries.sort()
        held_up_ms = (time.monotonic() - started) * 1000
        try:
            directory.mkdir(parents=True)
            write_entries(directory / ENTRIES_FILE, entries)
            _sync_directory(directory)
        except OSError as error:
            raise UnavailableError(f"the snapshot cannot be written to {directory}: {error.strerror}") from error
        return held_up_ms

    def size_bytes(self) -> int:
        entries = self._open()
        for _ in range(_SAMPLE_TRIES):
            # Heartbeats ask while a batch writes, which may add entries under the iterator.
            with suppress(RuntimeError):
                sample = [len(key) + len(value) for key, value in list(islice(entries.items(), 1000))]
                return len(entries) * (_ENTRY_BYTES + sum(sample) // len(sample)) if sample else 0
        return len(entries) * _ENTRY_BYTES

    def entry_count(self) -> int:
        """Return the number of entries."""
        return len(self._open())

    def sample(self, entries: int, random: Random) -> list[tuple[bytes, bytes]]:
        """Return all entries if there are at most so many, else so many picked at random; another thread may write meanwhile."""
        held = self._open()
        if len(held) <= entries:
            return list(held.items())
        # Keys that were deleted since they were indexed are not in the dict any more, new ones wait in the second list.
        keys, more = self._index, self._unindexed
        places = range(len(keys) + len(more))
        picked = (keys[at] if at < len(keys) else more[at - len(keys)] for at in random.sample(places, min(entries, len(places))))
        return [(key, value) for key in picked if (value := held.get(key)) is not None]

    def close(self) -> None:
        self._closed = True
        self._entries = {}
        self._index = []

    def _open(self) -> dict[bytes, bytes]:
        if self._closed:
            raise ClosedError("the state store is closed")
        return self._entries

    def _bring_up_index(self) -> None:
        if self._deleted > len(self._entries):
            self._index = sorted(self._entries)
            self._unindexed = []
            self._deleted = 0
        elif self._unindexed:
            # Keys that were deleted and came back stand twice in the list until the duplicates are dropped here.
            self._index = list(dict.fromkeys(sorted(self._index + self._unindexed)))
            self._unindexed = []


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
