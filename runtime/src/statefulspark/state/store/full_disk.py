"""Recognises a RocksDB instance that takes no writes although its disk, which was full, has room again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["FullDisk"]

_SPARE_BYTES: Final = 4 << 20
_PATIENCE_S: Final = 15.0
"""RocksDB looks every five seconds whether it may go on by itself."""


class FullDisk:
    """The times at which an instance met a full disk.

    After such an error RocksDB takes no writes until its disk has as much room as the write buffers of all instances may take together (64 MiB
    by default; `SstFileManagerImpl::ClearError`). On a disk that stays nearly full this never ends, while a slot that restores needs less.

    Args:
        path: A folder on that disk.
        clock: Returns seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._room_since: float | None = None

    def stuck(self, buffered_bytes: int) -> bool:
        """Take in an error for want of room; True if there has been room for what is buffered for longer than RocksDB waits.

        Args:
            buffered_bytes: Size of what the instance has not written to files.
        """
        if self._free_bytes() < buffered_bytes + _SPARE_BYTES:
            self._room_since = None
            return False
        now = self._clock()
        if self._room_since is None:
            self._room_since = now
        return now - self._room_since >= _PATIENCE_S

    def _free_bytes(self) -> int:
        try:
            found = os.statvfs(self._path)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize
