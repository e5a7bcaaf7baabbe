"""Commands: what changes a running job (stop, rescale, cancel, the way back) is done by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from statefulspark.errors import ConflictError


class Commands:
    """Keeps them apart, and knows the one in progress."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = ""

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Run the block if nothing else is in progress.

        Args:
            what: A noun phrase for the block, for the error of other commands.

        Raises:
            ConflictError: Something is.
        """
        with self.if_free(what) as free:
            if not free:
                raise ConflictError(f"{self._holder or 'another command'} is in progress. Repeat the command when it has ended")
            yield

    @contextmanager
    def if_free(self, what: str) -> Iterator[bool]:
        """Yield False if something is in progress; otherwise nothing begins within the block, which is ``what``."""
        free = self._lock.acquire(blocking=False)
        try:
            if free:
                self._holder = what
            yield free
        finally:
            if free:
                self._holder = ""
                self._lock.release()

    @contextmanager
    def in_turn(self, what: str) -> Iterator[None]:
        """Wait until nothing is in progress, and run the block, which is ``what``."""
        with self._lock:
            self._holder = what
            try:
                yield
            finally:
                self._holder = ""
