"""PerProcess: a client that each process makes for itself, at its first use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Makes one client per process: after a fork its sockets would be shared with the parent. Thread-safe; pickles without the client.

    Args:
        make: Makes the client; picklable if the holder is.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: tuple[int, T] | None = None

    def __getstate__(self) -> Callable[[], T]:
        """Leave out the client."""
        return self._make

    def __setstate__(self, make: Callable[[], T]) -> None:
        """Restore; the client is made at the first use."""
        self._make, self._lock, self._made = make, threading.Lock(), None

    def get(self) -> T:
        """The client of this process."""
        made = self._made
        if made is not None and made[0] == os.getpid():
            return made[1]
        with self._lock:
            made = self._made
            if made is None or made[0] != os.getpid():
                made = self._made = (os.getpid(), self._make())
            return made[1]

    def forget(self) -> None:
        """Make a new client at the next use."""
        self._made = None
