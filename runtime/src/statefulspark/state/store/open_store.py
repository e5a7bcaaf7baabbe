"""open_store: the only module that knows which kinds of stores exist."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from statefulspark.configuration import Configuration
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.api.state_backends import SlotResources
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.own_backend import imported_backend, is_own_backend, own_store_opener
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore
from statefulspark.state.store.state_sizes import SampledSizes, StateSizes, SweptSizes

_SPILL_BYTES: Final = 32 << 20
"""Native memory of a spill beside a store that has none."""


def open_store(kind: str, path: Path, options: RocksDBOptions | None = None) -> KeyValueStore:
    """Open the store in ``path``, which may be a snapshot of the same kind; a missing or empty directory gives an empty store.

    Args:
        kind: ``rocksdb``, Flink's two names for state in memory, ``memory`` and ``filesystem``, or a `StateBackend` as ``module:Class``, which is
            imported and gets no settings.
        path: Directory of the store. A store in memory only reads it.
        options: For ``rocksdb``.

    Raises:
        InvalidInputError: The kind is unknown, or the class cannot be imported or is no `StateBackend`.
        ConflictError: The directory is open elsewhere.
        CorruptDataError: What is there is damaged.
        UnavailableError: The disk is full or fails.
    """
    if kind == "rocksdb":
        return RocksDBStore(path, options)
    if kind in {"memory", "filesystem"}:
        return HeapStore(path)
    if is_own_backend(kind):
        return own_store_opener(imported_backend(kind), Configuration(), SlotResources())(path)
    raise InvalidInputError(f"unknown kind {kind!r}", field="state backend", remedy="Use rocksdb, memory or filesystem.")


def sizes_of(store: KeyValueStore, key_groups: KeyGroupRange) -> StateSizes:
    """Return what measures the states of a slot's store."""
    return SampledSizes(store) if isinstance(store, HeapStore) else SweptSizes(store, key_groups)


def open_spill(path: Path, beside: KeyValueStore) -> RocksDBStore:
    """Open an empty store for a batch that outgrew its memory.

    Args:
        path: Its directory; what is there from an earlier process is deleted.
        beside: The store of the slot: the spill's native memory comes out of the same budget, if that has one.
    """
    shutil.rmtree(path, ignore_errors=True)
    options = beside.options if isinstance(beside, RocksDBStore) else RocksDBOptions(memory=RocksDBMemory.managed(_SPILL_BYTES))
    # Its log is deleted with its files, and its statistics are not read.
    return RocksDBStore(path, replace(options, settings=replace(options.settings, log_dir=None), statistics=False))
