"""Write batches of RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from rocksdict import WriteBatch

from statefulspark.state.store.base import Change

WRITE_ENTRIES: Final = 1024
"""The most of one batch."""


def next_batch(changes: Iterator[Change], size_max: int) -> WriteBatch:
    """Take as many changes as one write should have."""
    batch = WriteBatch(raw_mode=True)
    put, delete = batch.put, batch.delete
    size_bytes = 0
    for key, value in islice(changes, WRITE_ENTRIES):
        if value is None:
            delete(key)
        else:
            put(key, value)
            size_bytes += len(value)
            if size_bytes > size_max:
                break
    return batch
