"""WriteBufferLimit: keeps the write buffers of a slot within 125 % of their limit, across all RocksDB instances.

RocksDB's write buffer manager does not block writers: it asks the instance being written to flush, and admits more writes meanwhile.
A single instance stops at about 150 %, which Flink's arithmetic assumes. A slot has a second instance while a batch spills, and
flushes are late on a busy machine: in measurements, a slot with 64 MiB used more than twice its limit.
RocksDB's own solution, write stalls, waits forever if an instance that nobody writes to holds the memory.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from rocksdict import Rdict, WriteBufferManager

_POLL_S: Final = 0.002
_WAIT_MAX_S: Final = 60.0
"""Maximum wait. Then the write proceeds, because a blocked slot is worse than one that exceeds its memory."""


class Writer(Protocol):
    """A store that shares the write buffers."""

    def native(self) -> Rdict | None:
        """Return its open instance, None when it is closed."""


class WriteBufferLimit:
    """Blocks writers while all write buffers together are too large.

    Args:
        manager: Counts the write buffers of all instances.

    Attributes:
        used: Callback after every write and every MiB read, when cached blocks are evicted for write buffers or for each other;
            the slot's allocator may then return the freed memory to the system.
    """

    def __init__(self, manager: WriteBufferManager) -> None:
        self._manager = manager
        self._writers: weakref.WeakSet[Writer] = weakref.WeakSet()
        self.used: Callable[[], None] = _nothing

    def join(self, writer: Writer) -> None:
        """Register an open store. It is released when it is closed or garbage-collected."""
        self._writers.add(writer)

    def wait(self) -> None:
        """Block until the write buffers are small enough for another write; other threads run meanwhile.

        Raises:
            Exception: What rocksdict raises when a flush fails.
        """
        self.used()
        if not self._over():
            return
        deadline = time.monotonic() + _WAIT_MAX_S
        while self._over() and time.monotonic() < deadline:
            databases = [database for writer in list(self._writers) if (database := writer.native()) is not None]
            if any(_flushes(database) for database in databases):
                time.sleep(_POLL_S)
            elif databases:
                max(databases, key=_mutable_bytes).flush(True)

    def _over(self) -> bool:
        return self._manager.get_usage() * 4 > self._manager.get_buffer_size() * 5


def _nothing() -> None:
    """The default callback."""


def _flushes(database: Rdict) -> bool:
    return bool(
        database.property_int_value("rocksdb.num-running-flushes") or database.property_int_value("rocksdb.mem-table-flush-pending")
    )


def _mutable_bytes(database: Rdict) -> int:
    return database.property_int_value("rocksdb.cur-size-active-mem-table") or 0
