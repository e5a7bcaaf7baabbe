"""WriteRoom: keeps the write buffers of a slot within a quarter more than their limit, whoever fills them.

RocksDB's write buffer manager does not hold writers up: it asks the instance that is being written to flush, and takes more meanwhile.
One instance stops at about half more, which is what Flink's arithmetic counts on. A slot has a second instance while a batch spills, and
a machine whose processors are busy flushes late: measured, the write buffers of a slot with 64 MiB reached more than twice their limit.
RocksDB's own remedy, stalling, waits for ever when the memory is held by an instance that nobody writes to.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from rocksdict import Rdict, WriteBufferManager

_POLL_S: Final = 0.002
_WAIT_MAX_S: Final = 60.0
"""Longest wait; then writing goes on, because a slot that stands still is worse than one that is too large."""


class Writer(Protocol):
    """A store that shares the write buffers."""

    def native(self) -> Rdict | None:
        """Return its open instance, None when it is closed."""


class WriteRoom:
    """See the module.

    Args:
        manager: Counts the write buffers of all instances.

    Attributes:
        used: Called after every write and every MiB that was read, which is when blocks make room for write buffers and for each other;
            whoever looks after the process's memory may give back what that freed.
    """

    def __init__(self, manager: WriteBufferManager) -> None:
        self._manager = manager
        self._writers: weakref.WeakSet[Writer] = weakref.WeakSet()
        self.used: Callable[[], None] = _nothing

    def join(self, writer: Writer) -> None:
        """A store is open from now on; it leaves by being closed or forgotten."""
        self._writers.add(writer)

    def wait(self) -> None:
        """Return when there is room for one more write; other threads run meanwhile.

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
    """Nobody looks after the process's memory."""


def _flushes(database: Rdict) -> bool:
    return bool(
        database.property_int_value("rocksdb.num-running-flushes") or database.property_int_value("rocksdb.mem-table-flush-pending")
    )


def _mutable_bytes(database: Rdict) -> int:
    return database.property_int_value("rocksdb.cur-size-active-mem-table") or 0
