"""SplitStore: a store in RocksDB whose timers lie on the Python heap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import Final

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.entries import HEAP_TIMERS_FILE
from statefulspark.state.encoding.layout import state_range
from statefulspark.state.store.base import Change, KeyValueStore, StoreSnapshot
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

_DIVERTED: Final = 4096
_LAST_STATE: Final = b"\xff" * 4


class SplitStore:
    """A `KeyValueStore` that routes by state id: timers to a `HeapStore`, everything else to a `RocksDBStore`.

    All entries of a state lie in one of the two. The states on the heap are those of the file that the store was opened with, and those of
    `declare_timers`. Entries of other states lie in RocksDB, also if they are timers of a step that is not open yet.

    Args:
        path: Directory of RocksDB's instance, or a snapshot of a split or of a RocksDB store.
        options: Of RocksDB.

    Attributes:
        rocksdb: The part in RocksDB.
        heap: The part on the heap.

    Raises:
        ConflictError: Another store has the directory open.
        CorruptDataError: Files are missing or damaged.
        UnavailableError: The disk is full or fails.
    """

    def __init__(self, path: Path, options: RocksDBOptions | None = None) -> None:
        self.heap = HeapStore(path, file_name=HEAP_TIMERS_FILE)
        self._on_heap = frozenset(key[2:4] for key, _ in self.heap.scan(b"", b"\xff\xff"))
        self.rocksdb = RocksDBStore(path, options)
        (path / HEAP_TIMERS_FILE).unlink(missing_ok=True)

    def declare_timers(self, state_id: int, key_groups: KeyGroupRange) -> None:
        """Keep the timers with this id on the heap from now on, and move those that lie in RocksDB. Nobody else may use the store.

        Args:
            state_id: Of one kind of timers of one step.
            key_groups: Those of the slot.

        Raises:
            UnavailableError: The disk is full or fails. The slot must be restored again.
        """
        self.heap.keep_ordered(state_id)
        route = state_id.to_bytes(2, "big")
        if route in self._on_heap:
            return
        for group in range(key_groups.first, key_groups.last + 1):
            first, end = state_range(group, state_id)
            moved = list(self.rocksdb.scan(first, end))
            if moved:
                self.heap.write(moved)
                self.rocksdb.write((key, None) for key, _ in moved)
        self._on_heap |= {route}

    def get(self, key: bytes) -> bytes | None:
        return self.heap.get(key) if key[2:4] in self._on_heap else self.rocksdb.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        on_heap = self._on_heap
        # Timers are read in time order and never looked up, so the keys are nearly always all of one part.
        if not any(key[2:4] in on_heap for key in keys):
            return self.rocksdb.get_many(keys)
        return [self.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        if len(first) >= 4 and first[:4] != _LAST_STATE and end <= _end_of_state(first):
            return self.heap.scan(first, end) if first[2:4] in self._on_heap else self.rocksdb.scan(first, end)
        return merge(self.rocksdb.scan(first, end), self.heap.scan(first, end))

    def write(self, changes: Iterable[Change]) -> None:
        self.rocksdb.write(self._diverted(changes))

    def delete_range(self, first: bytes, end: bytes) -> None:
        self.heap.delete_range(first, end)
        self.rocksdb.delete_range(first, end)

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        # Nobody writes meanwhile, so both parts are of one batch.
        timers = self.heap.begin_snapshot(directory)
        links = self.rocksdb.begin_snapshot(directory)
        if not self.heap.entry_count():
            return links

        def write() -> None:
            links.write()
            timers.write()

        return StoreSnapshot(write, links.held_up_ms + timers.held_up_ms)

    def size_bytes(self) -> int:
        return self.rocksdb.size_bytes() + self.heap.size_bytes()

    def close(self) -> None:
        self.heap.close()
        self.rocksdb.close()

    def _diverted(self, changes: Iterable[Change]) -> Iterator[Change]:
        """Yield the changes for RocksDB, and write the others to the heap."""
        on_heap = self._on_heap
        timers: list[Change] = []
        for change in changes:
            if change[0][2:4] not in on_heap:
                yield change
                continue
            timers.append(change)
            if len(timers) == _DIVERTED:
                self.heap.write(timers)
                timers = []
        self.heap.write(timers)


def rocksdb_part(store: KeyValueStore) -> RocksDBStore | None:
    """Return the RocksDB instance of a slot's store, None if it has none."""
    if isinstance(store, SplitStore):
        return store.rocksdb
    return store if isinstance(store, RocksDBStore) else None


def _end_of_state(key: bytes) -> bytes:
    """Return the end of the state in the key group that a store key is of; `state_range` without its parts."""
    return (int.from_bytes(key[:4], "big") + 1).to_bytes(4, "big")
