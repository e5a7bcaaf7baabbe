"""What ``statefulspark run`` writes besides its answer: progress, log records of driver and slots, and the file with Spark's log."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

import structlog
from rich.console import Console

from statefulspark.cli.launch.log_output import configure_logging, log_levels
from statefulspark.cli.launch.progress import PROGRESS_LOGGER, LogReporter, TerminalReporter
from statefulspark.errors import InvalidInputError
from statefulspark.exchange.config import SlotLogs
from statefulspark.job.spark.kubernetes import MASTER
from statefulspark.logs.levels import LogLevel
from statefulspark.logs.log_file import LogFile, log_directory, records_path
from statefulspark.logs.redaction import hide_secrets, redact
from statefulspark.logs.socket_lines import LogReceiver
from statefulspark.logs.tail import BYTES_MAX, LogTail
from statefulspark.storage.local.working_folder import open_socket_folder

_log = structlog.get_logger("statefulspark.run")
_STDERR: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLogs:
    """Where a run writes.

    Attributes:
        reporter: Shows progress.
        slots: How slots write log records.
        tail: Keeps the last records for the API.
        file: Takes Spark's log; None leaves that on stderr.
    """

    reporter: TerminalReporter | LogReporter
    slots: SlotLogs
    tail: LogTail
    file: LogFile | None

    @property
    def spark_output(self) -> int | None:
        """Descriptor of the file; None if there is none."""
        return self.file.descriptor if self.file is not None else None


@contextmanager
def run_logs(
    name: str, log_file: str | None, level: LogLevel, *, progress: bool | None, master: str | None, secrets: Iterable[str] = ()
) -> Iterator[RunLogs]:
    """Set up logging; what slots have written until the end is on stderr afterwards.

    Args:
        name: The job's.
        log_file: Path of the file for Spark's log, ``-`` for none, or None for the default.
        level: Minimum level of the job's own records.
        progress: Whether to show a progress line; None shows it on a terminal.
        master: ``--master``.
        secrets: Texts that no log record, error or answer of the API may show.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    console = Console(stderr=True)
    live = console.is_terminal if progress is None else progress
    configure_logging(console if live else None, level)
    sys.excepthook = _report
    with ExitStack() as stack:
        tail = LogTail(
            hide_secrets(secrets), elsewhere=_elsewhere(name) if master == MASTER else None, file=_kept(name, log_file, master, stack)
        )
        tail.addFilter(lambda record: record.name != PROGRESS_LOGGER)
        logging.getLogger().addHandler(tail)
        stack.callback(logging.getLogger().removeHandler, tail)  # its file is closed with the run
        file = _open(name, log_file, master)
        if file is not None:
            stack.callback(file.close)
            file.write(f"--- job {name}, driver process {os.getpid()}, started {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        folder = open_socket_folder("log")
        stack.callback(folder.close)
        receiver = stack.enter_context(LogReceiver(folder.path, file.cut if file is not None else lambda: None))
        yield RunLogs(
            reporter=TerminalReporter(console, clock_s=time.monotonic, clock_ms=now_ms) if live else LogReporter(clock_s=time.monotonic),
            slots=SlotLogs(levels=log_levels(level, terminal=live), socket=receiver.path),
            tail=tail,
            file=file,
        )


def _report(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
    """Write an error that nothing has handled to stderr, as the interpreter does, without secrets."""
    sys.stderr.write(redact("".join(traceback.format_exception(error))))


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _elsewhere(name: str) -> str:
    return (
        "records of slots below WARNING are in the executors' pods: "
        f"kubectl logs --selector statefulspark.io/job={name},statefulspark.io/component=executor --prefix --tail 100"
    )


def _kept(name: str, log_file: str | None, master: str | None, stack: ExitStack) -> LogFile | None:
    """Open the file that keeps the records for `statefulspark logs` after the job's end; None in a pod, for ``-``, and where it cannot be written."""
    if log_file == _STDERR or master == MASTER:
        return None
    with suppress(InvalidInputError):
        file = LogFile(records_path(name, os.environ, Path.home()), bytes_max=BYTES_MAX)
        stack.callback(file.close)
        return file
    return None


def _open(name: str, log_file: str | None, master: str | None) -> LogFile | None:
    """Open the file. Without an option, a pod has none: `kubectl logs` shows what its processes write to stdout and stderr."""
    if log_file == _STDERR or (log_file is None and master == MASTER):
        return None
    if log_file is not None:
        return LogFile(Path(log_file))
    try:
        return LogFile(log_directory(os.environ, Path.home()) / f"{name}.log")
    except InvalidInputError as error:
        # A home directory that cannot be written is no reason to refuse a job.
        _log.warning("Spark's log stays on stderr", error=str(error))
        return None
