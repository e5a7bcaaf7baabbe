"""open_store: the only module that knows which kinds of stores exist."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from statefulspark.configuration import Configuration
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.api.state_backends import SlotResources
from statefulspark.state.encoding.entries import CANONICAL, HEAP_TIMERS_FILE, PARQUET_ENTRIES_FILE, read_entries
from statefulspark.state.store.base import KeyValueStore, StoredEntries
from statefulspark.state.store.entries_file import EntriesFile
from statefulspark.state.store.heap_store import ENTRIES_FILE, HeapStore
from statefulspark.state.store.own_backend import check_trusted, imported_backend, is_own_backend, own_store_opener
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore
from statefulspark.state.store.split_store import SplitStore, rocksdb_part
from statefulspark.state.store.state_sizes import SampledSizes, StateSizes, SweptSizes

_IN_MEMORY: Final = frozenset({"memory", "filesystem"})
_SPILL_BYTES: Final = 32 << 20
"""Native memory of a spill beside a store that has none."""


def open_store(kind: str, path: Path, options: RocksDBOptions | None = None, *, heap_timers: bool = False) -> KeyValueStore:
    """Open the store in ``path``, which may be a snapshot of the same kind; a missing or empty directory gives an empty store.

    Args:
        kind: ``rocksdb``, Flink's two names for state in memory, ``memory`` and ``filesystem``, or a `StateBackend` as ``module:Class``, which is
            imported and gets no settings.
        path: Directory of the store. A store in memory only reads it.
        options: For ``rocksdb``.
        heap_timers: For ``rocksdb``: keep timers on the Python heap. Either way the files may have been written the other way.

    Raises:
        InvalidInputError: The kind is unknown, or the class cannot be imported or is no `StateBackend`.
        ConflictError: The directory is open elsewhere.
        CorruptDataError: What is there is damaged.
        UnavailableError: The disk is full or fails.
    """
    if kind == "rocksdb":
        return SplitStore(path, options) if heap_timers else _with_timers_inside(path, options)
    if kind in _IN_MEMORY:
        return HeapStore(path)
    if is_own_backend(kind):
        return own_store_opener(imported_backend(kind), Configuration(), SlotResources())(path)
    raise InvalidInputError(f"unknown kind {kind!r}", field="state backend", remedy="Use rocksdb, memory or filesystem.")


def open_snapshot(kind: str, path: Path) -> StoredEntries:
    """Open the snapshot in ``path`` to read it; memory does not grow with it, unless a `StateBackend` of one's own lets it.

    The kind comes from a checkpoint, which anyone may have written: a class is imported only if the caller has named it (`trust_backend`).

    Args:
        kind: As of `open_store`, or `CANONICAL`.
        path: Directory of the snapshot. RocksDB may change files in it.

    Raises:
        InvalidInputError: The kind is the name of a class that the caller has not named.
        StatefulSparkError: As of `open_store`.
    """
    if is_own_backend(kind):
        check_trusted(kind)
    if kind == CANONICAL:
        from statefulspark.state.store.parquet_entries import ParquetEntries  # noqa: PLC0415  most slots never need Parquet's 10 MiB

        return ParquetEntries(path / PARQUET_ENTRIES_FILE)
    return EntriesFile(path / ENTRIES_FILE) if kind in _IN_MEMORY else open_store(kind, path)


def _with_timers_inside(path: Path, options: RocksDBOptions | None) -> RocksDBStore:
    """Open a store in RocksDB. Timers that a `SplitStore` has left beside its files go into it."""
    store = RocksDBStore(path, options)
    file = path / HEAP_TIMERS_FILE
    if file.exists():
        try:
            store.write(read_entries(file))
        except BaseException:
            store.close()
            raise
        file.unlink()
    return store


def sizes_of(store: KeyValueStore, key_groups: KeyGroupRange) -> StateSizes:
    """Return the measuring of the states of a slot's store."""
    return SampledSizes(store) if isinstance(store, HeapStore) else SweptSizes(store, key_groups)


def open_spill(path: Path, beside: KeyValueStore) -> RocksDBStore:
    """Open an empty store for a batch that outgrew its memory.

    Args:
        path: Its directory; what is there from an earlier process is deleted.
        beside: The store of the slot: the spill's native memory comes out of the same budget, if that has one.
    """
    shutil.rmtree(path, ignore_errors=True)
    rocksdb = rocksdb_part(beside)
    options = rocksdb.options if rocksdb is not None else RocksDBOptions(memory=RocksDBMemory.managed(_SPILL_BYTES))
    # Its log is deleted with its files, and its statistics are not read.
    return RocksDBStore(path, replace(options, settings=replace(options.settings, log_dir=None), statistics=False))


def add_range(store: KeyValueStore, entries: Iterator[tuple[bytes, bytes]]) -> None:
    """Add entries in the order of their keys, in a range in which the store has none.

    Raises:
        UnavailableError: The disk is full or fails.
    """
    if isinstance(store, RocksDBStore):
        store.ingest(entries)
    else:
        store.write(entries)
