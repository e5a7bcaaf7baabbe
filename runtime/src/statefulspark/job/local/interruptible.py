"""Waits for work that an interrupt of the notebook's cell must not cut in two: it runs in a thread, and only the wait is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from statefulspark.errors import UnavailableError

T = TypeVar("T")


class Background(Generic[T]):
    """A call that runs in a thread of its own.

    Args:
        call: The call.
        name: The thread's.
    """

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:  # noqa: BLE001  raised again by the thread that waits
            self._error = error
        finally:
            self._done.set()

    def result(self, timeout_s: float, late: str) -> T:
        """Wait for the call, and return what it returned or raise what it raised, without the frames of its thread.

        Raises:
            UnavailableError: It did not return in time; it still runs.
        """
        if not self._done.wait(timeout_s):
            raise UnavailableError(late)
        if self._error is not None:
            raise self._error.with_traceback(None) from None
        return self._results[0]
