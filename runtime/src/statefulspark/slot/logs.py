"""Logging of a slot's process: records of functions, with slot, uid and key group, go to the driver or to the executor's log.

`print` in a function becomes records too, because the standard output of a slot is the log of Spark's JVM.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import Any

import structlog

from statefulspark.errors import InvalidInputError
from statefulspark.exchange.config import SlotLogs
from statefulspark.logs.forwarding import ForwardedRecords
from statefulspark.logs.json_lines import TEXT_MAX, json_formatter, route_to_logging
from statefulspark.logs.levels import PRINT_LOGGER, present_levels, set_levels
from statefulspark.logs.socket_lines import LineSender

_step: ContextVar[tuple[str, Callable[[], int]] | None] = ContextVar("step", default=None)
"""Uid of the step whose function runs in this thread, and what returns the key group of its current key or raises InvalidInputError."""


@contextmanager
def logs_of_step(uid: str, key_group: Callable[[], int]) -> Iterator[None]:
    """Add uid and key group to the records that this thread writes meanwhile.

    Args:
        uid: The step.
        key_group: Returns the key group of the current key, or raises InvalidInputError if there is none.
    """
    token = _step.set((uid, key_group))
    try:
        yield
    finally:
        _step.reset(token)


@contextmanager
def logs_of_slot(settings: SlotLogs, slot: int) -> Iterator[ForwardedRecords]:
    """Write the records of this process as those of a slot; what was set before is set again afterwards, because Spark uses the process again.

    Yields what heartbeats take to a driver on another machine.
    """
    forwarded = ForwardedRecords()

    def facts(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {"slot": slot} | _step_facts() | dict(event)

    root = logging.getLogger()
    before, levels, configuration = root.handlers, present_levels(), structlog.get_config()
    handler: logging.Handler = LineSender(settings.socket, forwarded) if settings.socket is not None else logging.StreamHandler(sys.stderr)
    handler.setFormatter(json_formatter(facts))
    root.handlers = [handler]
    settings.levels.apply()
    route_to_logging()
    try:
        with redirect_stdout(PrintedLines()):
            yield forwarded
    finally:
        handler.close()
        root.handlers = before
        set_levels(levels)
        structlog.configure(**configuration)


def _step_facts() -> dict[str, Any]:
    step = _step.get()
    if step is None:
        return {}
    uid, key_group = step
    try:
        return {"uid": uid, "key_group": key_group()}
    except InvalidInputError:
        return {"uid": uid}


class PrintedLines(io.TextIOBase):
    """A standard output whose lines become log records."""

    def __init__(self) -> None:
        self._log = logging.getLogger(PRINT_LOGGER)
        self._started = threading.local()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Log the lines that ``text`` ends; the rest waits for the end of its line, in this thread."""
        *lines, rest = (getattr(self._started, "text", "") + text).split("\n")
        if len(rest) > TEXT_MAX:
            lines, rest = [*lines, rest[:TEXT_MAX]], rest[TEXT_MAX:]
        self._started.text = rest
        for line in lines:
            if line:
                self._log.info("%s", line)
        return len(text)
