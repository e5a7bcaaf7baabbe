"""``statefulspark-operator``: run the operator with the settings of its environment."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Final

import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark_operator.allocator import limit_free_memory
from statefulspark_operator.process import run_operator
from statefulspark_operator.settings import LogFormat, OperatorSettings
from statefulspark_operator.tls_buffers import limit_tls_buffers

LEVELS: Final = 40_000
"""An API server takes objects of 10000 levels, which copying doubles. At Python's own 1000, one such object ends the watch of all others; the
stack of 8 MiB that Linux gives a thread holds more than this."""


def main() -> None:
    """Run until told to end. Exits with 2 when the settings are wrong, with 1 when the operator cannot go on."""
    try:
        settings = OperatorSettings.of(os.environ)
    except StatefulSparkError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from error
    limit_free_memory()
    limit_tls_buffers()
    _configure_logging(settings)
    sys.setrecursionlimit(LEVELS)
    try:
        asyncio.run(run_operator(settings))
    except StatefulSparkError as error:
        raise SystemExit(1) from error


def _configure_logging(settings: OperatorSettings) -> None:
    level = getattr(logging, settings.log_level.upper())
    as_json = settings.log_format is LogFormat.JSON
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(default=str) if as_json else structlog.dev.ConsoleRenderer(colors=False)
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # Lines per request and per watch event are for those who ask for them.
    for name in ("httpx", "httpx2", "httpcore", "httpcore2", "kopf", "aiohttp", "botocore", "boto3", "urllib3", "uvicorn"):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    # A line for each attempt of each watch, and that it does not take over signals: handlers/watch_health tells what matters.
    for name in ("kopf._cogs.clients.watching", "kopf._core.reactor.running"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


if __name__ == "__main__":
    main()
