"""RestoreProgress: how much of what a slot restores it has downloaded."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadedBytes:
    """A moment of a restore. Files are counted when they are complete and verified."""

    downloaded_bytes: int
    total_bytes: int


class RestoreProgress:
    """Counts the files of a restore; the threads that download them write, another thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._downloaded_bytes = 0
        self._total_bytes: int | None = None

    def begin(self, total_bytes: int) -> None:
        """Set the size of all files that will be downloaded."""
        with self._lock:
            self._total_bytes = total_bytes

    def add(self, size_bytes: int) -> None:
        """Count a file that is on the local disk."""
        with self._lock:
            self._downloaded_bytes += size_bytes

    def read(self) -> DownloadedBytes | None:
        """Return what has been downloaded; None before the size of all files is known."""
        with self._lock:
            if self._total_bytes is None:
                return None
            return DownloadedBytes(downloaded_bytes=self._downloaded_bytes, total_bytes=self._total_bytes)
