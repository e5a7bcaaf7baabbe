"""Calls of a library that may block past its own time limits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def bounded(work: Callable[[], T], limit_s: float) -> T:
    """Runs a call in a thread of its own, which the end of the process does not wait for.

    Raises:
        TimeoutError: The call took longer. It cannot be interrupted and may still end.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  raised in the caller's thread
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="kafka", daemon=True).start()
    try:
        return future.result(limit_s)
    except TimeoutError:
        if future.done():
            raise
        raise TimeoutError(f"no response within {limit_s:.0f} s") from None
