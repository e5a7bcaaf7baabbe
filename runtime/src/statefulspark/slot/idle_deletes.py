"""IdleDeletes: writes the deletes of the cleanup to files in a slot that receives no rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from statefulspark.slot.keyed_step import KeyedStep
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.rocksdb_store import RocksDBStore

_DELETES_MIN: Final = 2000
"""Deletes that are worth a file and a compaction."""


class IdleDeletes:
    """Flushes the write buffers after the cleanup has deleted entries and no batch has changed the slot since the heartbeat before.

    Nothing else fills the buffers then. The deletes would stay in them, and the files would keep their size. RocksDB compacts files that
    consist of deletes by itself (see `rocksdb_options`). Used by the thread that sends heartbeats.
    """

    def __init__(self) -> None:
        self._batches: list[int] = []
        self._flushed = 0

    def flush(self, store: KeyValueStore, keyed_steps: Iterable[KeyedStep]) -> None:
        """Flush if it is worthwhile; call it with each heartbeat.

        Raises:
            UnavailableError: The disk is full or fails; the next call tries again.
        """
        backends = [keyed_step.backend for keyed_step in keyed_steps]
        batches = [backend.batch for backend in backends]
        idle, self._batches = batches == self._batches, batches
        deleted = sum(sum(backend.cleanup_report().expired.values()) for backend in backends)
        # A step that catches up counts from zero again.
        self._flushed = min(self._flushed, deleted)
        if idle and deleted - self._flushed >= _DELETES_MIN and isinstance(store, RocksDBStore):
            store.flush()
            self._flushed = deleted
