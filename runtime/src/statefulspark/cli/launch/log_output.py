"""Logging of the ``run`` command: readable lines above the progress bar on a terminal, JSON lines everywhere else."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any

import structlog
from rich.console import Console
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler
from rich.text import Text

from statefulspark.logs.json_lines import formatter, json_formatter, route_to_logging
from statefulspark.logs.levels import LogLevel, LogLevels
from statefulspark.logs.redaction import redact


def log_levels(level: LogLevel, *, terminal: bool) -> LogLevels:
    """Return the levels of a run's log records: a terminal shows statefulspark's own ones from WARNING on, beside the progress line.

    Args:
        level: Minimum level of the job's own code.
        terminal: True if a person watches.
    """
    return LogLevels(user=level.number, internal=logging.WARNING if terminal else logging.INFO)


def configure_logging(terminal: Console | None, level: LogLevel = LogLevel.INFO) -> None:
    """Send all log records of this process to stderr.

    Args:
        terminal: Where a person watches; None writes one JSON object per line.
        level: Minimum level of the job's own code.
    """
    if terminal is not None:
        handler: logging.Handler = RichHandler(
            console=terminal,
            show_path=False,
            rich_tracebacks=False,
            markup=False,
            highlighter=NullHighlighter(),
            log_time_format=_time,
            omit_repeated_times=False,
        )
        # plain_traceback: the renderer's own choice would print the values of local variables, secrets among them.
        console = structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback)
        handler.setFormatter(formatter([_without_time, _slot_first], console, _redacted))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(json_formatter())
    logging.getLogger().handlers = [handler]
    log_levels(level, terminal=terminal is not None).apply()
    route_to_logging()


def _redacted(_: Any, __: str, text: Any) -> str:
    return redact(str(text))


def _time(when: datetime) -> Text:
    return Text(when.astimezone(UTC).strftime("%H:%M:%SZ"))


def _without_time(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave the time to the handler, which writes it in a column of its own."""
    del event["timestamp"]
    return event


def _slot_first(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Begin the text of a slot's record with slot, key group and uid."""
    if "uid" not in event or "slot" not in event:
        return event
    group = f", key group {event.pop('key_group')}" if "key_group" in event else ""
    event["event"] = f"[slot {event.pop('slot')}{group}, uid {event.pop('uid')}] {event['event']}"
    return event
