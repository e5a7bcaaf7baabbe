"""HeapStore: keeps all entries on the Python heap, and writes snapshots of them while batches go on."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final
from weakref import WeakSet

from statefulspark.errors import ClosedError, UnavailableError
from statefulspark.state.encoding.entries import read_entries, write_entries
from statefulspark.state.store.base import Change, StoreSnapshot
from statefulspark.state.store.heap_groups import HeapGroup

ENTRIES_FILE: Final = "entries"

_ENTRY_BYTES: Final = 170
"""Memory overhead per entry: a dict entry, two bytes objects and an index slot."""
_CHUNK: Final = 128
"""Entries that a scan takes at once: each of them may have to be put in order, so not many more than its reader needs."""
_SAMPLE_TRIES: Final = 20
_SAMPLE_PICKS: Final = 16
"""Key groups of one sample: the keys of each are listed, which must not take long."""


class _Frozen:
    """The entries of each key group as they were at the call of `HeapStore.begin_snapshot`."""

    __slots__ = ("__weakref__", "groups")

    def __init__(self, groups: dict[bytes, dict[bytes, bytes]]) -> None:
        self.groups = groups

    def written_to(self, path: Path) -> None:
        # Sorted one group at a time: a sort keeps other threads from running.
        write_entries(path, (entry for prefix in sorted(self.groups) for entry in sorted(self.groups[prefix].items())))


class HeapStore:
    """A `KeyValueStore` of one dict per key group (the first two bytes of a key), each with a sorted index for scans.

    A snapshot freezes the dicts. The first later write into a frozen key group copies its dict, not its entries, so a batch copies only the groups
    that it writes, and the snapshot's thread reads dicts that do not change.

    Args:
        directory: A snapshot to start from; without the file in it, or when None, the store starts empty.
        file_name: Name of the one file of a snapshot.

    Raises:
        CorruptDataError: The snapshot is damaged.
    """

    def __init__(self, directory: Path | None = None, *, file_name: str = ENTRIES_FILE) -> None:
        self._file_name = file_name
        self._groups: dict[bytes, HeapGroup] = {}
        self._order: list[bytes] = []
        self._ordered: set[bytes] = set()
        self._closed = False
        # Writes and scans in chunks exclude each other; single reads need no lock. Reentrant: what is written may be a scan of this store.
        self._lock = threading.RLock()
        # Weak: one that is abandoned before it is written keeps nothing.
        self._snapshots: WeakSet[_Frozen] = WeakSet()
        if directory is not None and (directory / file_name).exists():
            self.write(read_entries(directory / file_name))

    def keep_ordered(self, state_id: int) -> None:
        """Keep the keys of a state in order as they come, because scans will begin with the first ones: they pay for no others then.

        What is stored already is put in order by the first scan of its key group.
        """
        self._ordered.add(state_id.to_bytes(2, "big"))

    def get(self, key: bytes) -> bytes | None:
        group = self._open().get(key[:2])
        return None if group is None else group.entries.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        groups = self._open()
        return [None if (group := groups.get(key[:2])) is None else group.entries.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        taken = 0
        while chunk := self._chunk(first, end, taken):
            yield from chunk
            if len(chunk) < _CHUNK:
                return
            first = chunk[-1][0] + b"\0"
            taken += _CHUNK

    def write(self, changes: Iterable[Change]) -> None:
        with self._lock:
            groups = self._open()
            for key, value in changes:
                group = groups.get(key[:2])
                if group is None:
                    group = self._new_group(key[:2])
                elif group.frozen:
                    group.copy_for_writing()
                if value is None:
                    group.remove(key)
                else:
                    group.put(key, value)

    def delete_range(self, first: bytes, end: bytes) -> None:
        with self._lock:
            groups = self._open()
            for prefix in self._order[bisect_left(self._order, first[:2]) : bisect_left(self._order, end)]:
                if len(prefix) == 2 and first <= prefix < end[:2]:
                    groups[prefix] = HeapGroup(self._ordered)  # all of it goes
                else:
                    self.write([(key, None) for key in groups[prefix].between(first, end)])

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        with self._lock:
            started = time.monotonic()  # of the freeze: waiting for the lock lets other threads run
            groups = self._open()
            for group in groups.values():
                group.frozen = True
            frozen = _Frozen({prefix: group.entries for prefix, group in groups.items()})
            self._snapshots.add(frozen)
        return StoreSnapshot(lambda: self._write_snapshot(frozen, directory), (time.monotonic() - started) * 1000)

    def size_bytes(self) -> int:
        entries = self.entry_count()
        sample: list[int] = []
        for _ in range(_SAMPLE_TRIES):
            # Heartbeats ask while a batch writes, which may add entries under the iterator.
            with suppress(RuntimeError):
                groups = list(self._open().values())
                picked = (each for group in groups for each in list(islice(group.entries.items(), 100)))
                sample = [len(key) + len(value) for key, value in islice(picked, 1000)]
                break
        return entries * (_ENTRY_BYTES + (sum(sample) // len(sample) if sample else 0))

    def entry_count(self) -> int:
        """Return the number of entries."""
        return sum(len(group.entries) for group in list(self._open().values()))

    def sample(self, entries: int, random: Random) -> list[tuple[bytes, bytes]]:
        """Return all entries if there are at most so many, else so many picked at random; another thread may write meanwhile.

        A hash spreads keys over key groups, so large samples come from a few groups.
        """
        # Copying a dict is one step under the interpreter lock, and a dict is read once: the writer may replace it.
        held = [group.entries for group in list(self._open().values()) if group.entries]
        sizes = list(map(len, held))
        if sum(sizes) <= entries:
            return [entry for each in held for entry in list(each.items())]
        found: list[tuple[bytes, bytes]] = []
        for place, picks in Counter(random.choices(range(len(held)), sizes, k=_SAMPLE_PICKS)).items():
            keys = list(held[place])
            wanted = min(len(keys), picks * entries // _SAMPLE_PICKS)
            found += [(key, value) for key in random.sample(keys, wanted) if (value := held[place].get(key)) is not None]
        return found

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._groups = {}
            self._order = []

    def _open(self) -> dict[bytes, HeapGroup]:
        if self._closed:
            raise ClosedError("the state store is closed")
        return self._groups

    def _new_group(self, prefix: bytes) -> HeapGroup:
        insort(self._order, prefix)
        group = self._groups[prefix] = HeapGroup(self._ordered)
        return group

    def _chunk(self, first: bytes, end: bytes, taken: int) -> list[tuple[bytes, bytes]]:
        """Return the next entries of a scan that has returned ``taken``; fewer than a chunk if they are the last ones."""
        with self._lock:
            groups, order = self._open(), self._order
            found: list[tuple[bytes, bytes]] = []
            at = bisect_left(order, first[:2])
            while at < len(order) and order[at] < end and len(found) < _CHUNK:
                group = groups[order[at]]
                entries = group.entries
                for key in group.between(first, end, taken):
                    if (value := entries.get(key)) is not None:
                        found.append((key, value))
                        if len(found) == _CHUNK:
                            break
                at += 1
            return found

    def _write_snapshot(self, frozen: _Frozen, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            frozen.written_to(directory / self._file_name)
            _sync_directory(directory)
        except OSError as error:
            raise UnavailableError(f"the snapshot cannot be written to {directory}: {error.strerror}") from error
        finally:
            self._release(frozen)

    def _release(self, frozen: _Frozen) -> None:
        """Let the store write into dicts of a snapshot that no other one needs."""
        with self._lock:
            self._snapshots.discard(frozen)
            for prefix in frozen.groups:
                group = self._groups.get(prefix)
                if group is not None:
                    group.frozen = any(each.groups.get(prefix) is group.entries for each in self._snapshots)
            # The snapshot itself is held until its upload is over.
            frozen.groups = {}


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
