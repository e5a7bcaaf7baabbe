"""UploadProgress: how much of a snapshot a slot has uploaded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedBytes:
    """A moment of an upload. Files are counted when storage has them."""

    checkpoint_id: int
    uploaded_bytes: int
    total_bytes: int
    """Of all files that are uploaded, or copied within storage, for this checkpoint or savepoint."""


class UploadProgress:
    """Counts the files of one upload at a time; the threads that upload them write, another thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: UploadedBytes | None = None

    @contextmanager
    def of(self, checkpoint_id: int) -> Iterator[None]:
        """Count what the block uploads."""
        try:
            self._now = UploadedBytes(checkpoint_id=checkpoint_id, uploaded_bytes=0, total_bytes=0)
            yield
        finally:
            self._now = None

    def begin(self, total_bytes: int) -> None:
        """Set the size of all files that will be uploaded."""
        self._change(total_bytes, 0)

    def add(self, size_bytes: int) -> None:
        """Count a file that storage has."""
        self._change(0, size_bytes)

    def _change(self, total_bytes: int, uploaded_bytes: int) -> None:
        with self._lock:
            now = self._now
            if now is not None:
                self._now = UploadedBytes(
                    checkpoint_id=now.checkpoint_id,
                    uploaded_bytes=now.uploaded_bytes + uploaded_bytes,
                    total_bytes=now.total_bytes + total_bytes,
                )

    def read(self) -> UploadedBytes | None:
        """Return the bytes uploaded so far; None if nothing is being uploaded."""
        return self._now
