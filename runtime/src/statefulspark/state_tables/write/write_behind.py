"""WriteBehind: writes in a thread of its own while the caller prepares what is written next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

_WAITING_MAX: Final = 2
"""Writes that may be pending: what they write is in memory until then."""


class WriteBehind:
    """Runs writes one after the other, in order. Arrow encodes and compresses without Python's lock, so the caller goes on meanwhile.

    A context manager: it waits for all writes. After an error none of them goes on.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write-behind")
        self._pending: deque[Future[object]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self.stop()

    def run(self, write: Callable[[], object]) -> None:
        """Begin a write as soon as those before it have ended; wait while too many are pending.

        Raises:
            Exception: What an earlier write raised.
        """
        while len(self._pending) >= _WAITING_MAX:
            self._pending.popleft().result()
        self._pending.append(self._thread.submit(write))

    def wait(self) -> None:
        """Wait for all writes; errors as of `run`."""
        while self._pending:
            self._pending.popleft().result()

    def stop(self) -> None:
        """Wait for the write that goes on, and begin no other one."""
        self._thread.shutdown(wait=True, cancel_futures=True)
