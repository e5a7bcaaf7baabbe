"""Commands: what changes a running job (stop, rescale, cancel, another query, the way back) is done by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from statefulspark.errors import ConflictError


class Commands:
    """Keeps them apart."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run the block if nothing else is in progress.

        Raises:
            ConflictError: Something is.
        """
        with self.if_free() as free:
            if not free:
                raise ConflictError("another rescale or stop is in progress")
            yield

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Yield False if something is in progress; otherwise nothing begins within the block."""
        free = self._lock.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._lock.release()

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Wait until nothing is in progress."""
        with self._lock:
            yield
