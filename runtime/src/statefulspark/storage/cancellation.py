"""Cancellation: lets another thread end an upload, also in the middle of a large file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from statefulspark.errors import ClosedError


class Cancellation:
    """Shared by those who may cancel an operation and the uploads that belong to it. Thread-safe.

    Args:
        message: Text of the error that the uploads raise.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._canceled = threading.Event()
        self._lock = threading.Lock()
        self._stops: list[Callable[[], object]] = []

    @property
    def canceled(self) -> bool:
        """True once `cancel` was called."""
        return self._canceled.is_set()

    def cancel(self) -> None:
        """End the uploads that run, and let no other one begin. Does not wait for their end."""
        with self._lock:
            self._canceled.set()
            stops = tuple(self._stops)
        for stop in stops:
            stop()

    def check(self) -> None:
        """Return unless the operation was canceled.

        Raises:
            ClosedError: It was.
        """
        if self._canceled.is_set():
            raise ClosedError(self._message)

    def sleep(self, seconds: float) -> None:
        """Wait before a retry.

        Raises:
            ClosedError: The operation was canceled before or meanwhile.
        """
        self._canceled.wait(seconds)
        self.check()

    @contextmanager
    def stopped_by(self, stop: Callable[[], object]) -> Iterator[None]:
        """Call ``stop``, which may come from another thread, if the operation is canceled within the block or was before."""
        with self._lock:
            self._stops.append(stop)
        try:
            if self.canceled:
                stop()
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)
