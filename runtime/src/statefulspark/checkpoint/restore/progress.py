"""RestoreProgress: how much of what a slot restores is on its disk."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredBytes:
    """A moment of a restore. Files are counted when they are complete and verified."""

    downloaded_bytes: int
    local_bytes: int
    """Of files that were still on the machine."""
    total_bytes: int


class RestoreProgress:
    """Counts the files of a restore; the threads that download or link them write, another thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._downloaded_bytes = 0
        self._local_bytes = 0
        self._total_bytes: int | None = None

    def begin(self, total_bytes: int) -> None:
        """Set the size of all files."""
        with self._lock:
            self._total_bytes = total_bytes

    def add(self, size_bytes: int) -> None:
        """Count a file that was downloaded."""
        with self._lock:
            self._downloaded_bytes += size_bytes

    def add_local(self, size_bytes: int) -> None:
        """Count a file that was on the machine already."""
        with self._lock:
            self._local_bytes += size_bytes

    def read(self) -> RestoredBytes | None:
        """Return the bytes on the disk; None before the size of all files is known."""
        with self._lock:
            if self._total_bytes is None:
                return None
            return RestoredBytes(downloaded_bytes=self._downloaded_bytes, local_bytes=self._local_bytes, total_bytes=self._total_bytes)
