"""Log records as JSON lines, and as records again. structlog's records and those of plain `logging` look alike."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from structlog.typing import Processor

from statefulspark.logs.redaction import redact_facts

TEXT_MAX: Final = 32_768
"""Characters of a message, a traceback or another text in a record that are kept."""
_RESERVED: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
"""Attributes of every record, which a record's own facts must not replace."""


def route_to_logging() -> None:
    """Send structlog's records through `logging`, whose handlers and levels then hold for all."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def formatter(facts: Iterable[Processor], *rendering: Processor) -> logging.Formatter:
    """Return a formatter that renders records of structlog and of plain `logging` with the same processors.

    Args:
        facts: Add facts to a record. They find the `logging` record under ``_record``.
        *rendering: Make its text.
    """
    meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder()], processors=[_with_time, *facts, meta, *rendering]
    )


def json_formatter(*facts: Processor) -> logging.Formatter:
    """Return a formatter that makes one JSON object in one line of a record, with what ``facts`` add.

    Keys are ``event``, ``level``, ``logger``, ``timestamp`` (UTC), ``exception`` (a traceback, without the values of variables) and the record's own.
    """
    return formatter(
        [*facts, structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name],
        structlog.processors.format_exc_info,
        _bounded,
        _redacted,
        structlog.processors.JSONRenderer(default=str),
    )


def record_of(line: str) -> logging.LogRecord | None:
    """Return the record of a line of `json_formatter`; None if the line is something else."""
    try:
        facts = json.loads(line)
        level = logging.getLevelNamesMapping().get(str(facts.pop("level")).upper(), logging.INFO)
        known = {
            "name": str(facts.pop("logger")),
            "msg": str(facts.pop("event")),
            "levelno": level,
            "levelname": logging.getLevelName(level),
            "created": datetime.fromisoformat(facts.pop("timestamp")).timestamp(),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return logging.makeLogRecord({name: value for name, value in facts.items() if name not in _RESERVED} | known)


def _with_time(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the time of the record, which may have been made in another process, and not the time at which it is written."""
    event["timestamp"] = datetime.fromtimestamp(event["_record"].created, UTC).isoformat().replace("+00:00", "Z")
    return event


def _redacted(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return redact_facts(dict(event))


def _bounded(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if isinstance(value, str) and len(value) > TEXT_MAX:
            event[name] = f"{value[:TEXT_MAX]} ... ({len(value) - TEXT_MAX} more characters)"
    return event
