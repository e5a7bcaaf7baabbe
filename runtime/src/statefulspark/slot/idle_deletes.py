"""IdleDeletes: writes the deletes of the cleanup to files in a slot that receives no rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from statefulspark.slot.keyed_step import KeyedStep
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.split_store import rocksdb_part

IDLE_S: Final = 60.0
"""Time without a batch after which a slot is idle. A job with a longer trigger interval flushes once per batch, which its write buffers bear."""
_DELETES_MIN: Final = 2000
"""Deletes that are worth a file and a compaction."""


class IdleDeletes:
    """Flushes the write buffers when the cleanup has deleted entries and no batch has changed the slot for `IDLE_S`.

    Nothing else fills the buffers then. The deletes would stay in them, and the files would keep their size. RocksDB compacts files that
    consist of deletes by itself (see `config.rocksdb.options`). Used by the thread that sends heartbeats.

    Args:
        now_s: A monotonic clock.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._batches: list[int] = []
        self._changed_s = now_s()
        self._flushed = 0

    def flush(self, store: KeyValueStore, keyed_steps: Iterable[KeyedStep]) -> None:
        """Flush if it is worthwhile; call it with each heartbeat.

        Raises:
            UnavailableError: The disk is full or fails; the next call tries again.
        """
        backends = [keyed_step.backend for keyed_step in keyed_steps]
        batches = [backend.batch for backend in backends]
        if batches != self._batches:
            self._batches, self._changed_s = batches, self._now_s()
        deleted = sum(sum(backend.cleanup_report().expired.values()) for backend in backends)
        # A step that catches up counts from zero again.
        self._flushed = min(self._flushed, deleted)
        idle = self._now_s() - self._changed_s >= IDLE_S
        rocksdb = rocksdb_part(store)
        if idle and deleted - self._flushed >= _DELETES_MIN and rocksdb is not None:
            rocksdb.flush()
            self._flushed = deleted
