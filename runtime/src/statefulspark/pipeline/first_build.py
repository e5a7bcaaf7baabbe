"""printing_once: a pipeline whose further builds print and log nothing.

A job builds its pipeline for a trial, then to start, and again after each failure and for each parallelism. What it says is the same each time.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from statefulspark.pipeline.script import Pipeline


def printing_once(pipeline: Pipeline) -> Pipeline:
    """Return a function that calls ``pipeline``, from the second time on without what it prints, and without log records but statefulspark's."""
    built = False

    def build(job: Any) -> Any:
        nonlocal built
        if not built:
            built = True
            return pipeline(job)
        with _silence():
            return pipeline(job)

    return build


@contextmanager
def _silence() -> Iterator[None]:
    """Drop what this thread prints and logs; other threads of the driver are not affected."""
    thread = threading.get_ident()

    def heard(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.name.startswith("statefulspark.")

    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(heard)
    try:
        with redirect_stdout(_OtherThreads(sys.stdout, thread)):
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(heard)


class _OtherThreads(io.TextIOBase):
    """A text stream that drops what one thread writes."""

    def __init__(self, stream: Any, thread: int) -> None:
        self._stream = stream
        self._thread = thread

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
