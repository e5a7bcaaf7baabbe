"""Logging of the ``run`` command: readable lines above the progress bar on a terminal, JSON lines everywhere else."""

from __future__ import annotations

import logging
import sys

import structlog
from rich.console import Console
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler
from structlog.typing import Processor

_QUIET = ("uvicorn", "py4j", "botocore", "boto3", "s3transfer", "urllib3", "asyncio", "httpx", "httpcore")


def configure_logging(terminal: Console | None) -> None:
    """Send all log records of this process to stderr.

    Args:
        terminal: Where a person watches (warnings only, beside the progress line); None writes one JSON object per line from INFO on.
    """
    if terminal is not None:
        handler: logging.Handler = RichHandler(
            console=terminal, show_path=False, rich_tracebacks=False, markup=False, highlighter=NullHighlighter()
        )
        # plain_traceback: the renderer's own choice would print the values of local variables, secrets among them.
        handler.setFormatter(
            _formatter([], structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback))
        )
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_formatter(_FACTS, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING if terminal is not None else logging.INFO)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


_FACTS: list[Processor] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def _formatter(facts: list[Processor], *rendering: Processor) -> logging.Formatter:
    """Render records of structlog and of plain logging alike."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder()],
        processors=[*facts, structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
