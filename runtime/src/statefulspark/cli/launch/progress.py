"""What ``statefulspark run`` shows while a job runs: one live line on a terminal, or a log line now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

import structlog
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from statefulspark.api_server.instants import at
from statefulspark.cli.common.job_tables import duration, in_progress, size
from statefulspark.coordinator.controls import JobStatus

_WINDOW_S = 10.0
PROGRESS_LOGGER = "statefulspark.progress"
"""Logger of the line every few seconds, which the records that the driver keeps leave out: the status says it."""


class Throughput:
    """Rows per second over the last ten seconds.

    Args:
        clock_s: Monotonic seconds.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, rows: int) -> float | None:
        """Take a new total; return the rate, or None before there are two looks."""
        now = self._clock_s()
        if self._seen and rows < self._seen[-1][1]:
            self._seen.clear()  # a rescale may restart the count
        self._seen.append((now, rows))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW_S:
            self._seen.popleft()
        first, before = self._seen[0]
        return (rows - before) / (now - first) if now > first else None


class TerminalReporter:
    """One live line at the bottom of a terminal; a context manager.

    Args:
        console: The terminal (stderr, so that stdout stays the answer).
        clock_s: Monotonic seconds.
        clock_ms: Milliseconds since the epoch.
    """

    def __init__(self, console: Console, *, clock_s: Callable[[], float], clock_ms: Callable[[], int]) -> None:
        self._console = console
        self._clock_ms = clock_ms
        self._throughput = Throughput(clock_s)
        self._spinner = Spinner("dots", Text("starting Spark and restoring state"))
        self._live = Live(self._spinner, console=console, transient=True, refresh_per_second=4)

    def __enter__(self) -> Self:
        """Show the line."""
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Take the line away."""
        self._live.stop()

    def log_file(self, path: str) -> None:
        """Say where Spark's log is."""
        self.notice(f"log of Spark: {path}")

    def started(self, status: JobStatus, *, url: str, connection_file: str) -> None:
        """Say where the API is; the token is in the file, never on the screen."""
        origin = f" from {status.restored_from}" if status.restored_from else ""
        self.notice(f"job {status.name} runs (attempt {status.attempt}, {status.parallelism} slots){origin}")
        self.notice(f"API {url}, token in {connection_file}")
        self.notice(f"status page {url}/ (statefulspark ui --job {status.name} opens it with the token)")

    def progress(self, status: JobStatus) -> None:
        """Redraw the line with the metrics of ``status``."""
        self._spinner.update(
            text=Text(
                progress_line(status, self._throughput.update(status.input_rows), self._clock_ms()), overflow="ellipsis", no_wrap=True
            )
        )

    def notice(self, text: str) -> None:
        """Print above the line."""
        self._console.print(Text(text), soft_wrap=True)


class LogReporter:
    """Structured log records: on every change of state, on every new checkpoint, and every ``every_s`` seconds.

    Args:
        clock_s: Monotonic seconds.
        every_s: Interval between records if nothing else changes.
    """

    def __init__(self, *, clock_s: Callable[[], float], every_s: float = 10.0) -> None:
        self._log = structlog.stdlib.get_logger("statefulspark.run")
        self._progress_log = structlog.stdlib.get_logger(PROGRESS_LOGGER)
        self._clock_s = clock_s
        self._every_s = every_s
        self._throughput = Throughput(clock_s)
        self._told: tuple[object, ...] = ()
        self._told_s = clock_s()

    def __enter__(self) -> Self:
        """Log that the start has begun: Spark and a large state need a while until there is more to tell."""
        self._log.info("starting Spark and restoring state")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Do nothing; every record has been written already."""

    def log_file(self, path: str) -> None:
        """Log where Spark's log is."""
        self._log.info("log of Spark", path=path)

    def started(self, status: JobStatus, *, url: str, connection_file: str) -> None:
        """Log the job's name, attempt, slots and API address; the token is in the file, never in the log."""
        self._log.info(
            "job started", job=status.name, job_id=status.job_id, attempt=status.attempt, parallelism=status.parallelism,
            restored_from=status.restored_from, api_url=url, connection_file=connection_file,
        )  # fmt: skip

    def progress(self, status: JobStatus) -> None:
        """Record when there is something to tell."""
        rate = self._throughput.update(status.input_rows)
        restoring = in_progress(replace(status, pending_snapshot=None))
        telling = (status.state, status.last_checkpoint.id if status.last_checkpoint else None, status.failed_checkpoints, bool(restoring))
        now = self._clock_s()
        if telling == self._told and now - self._told_s < self._every_s:
            return
        self._told, self._told_s = telling, now
        self._progress_log.info(
            "progress", job=status.name, state=status.state.value, batch=status.batch, input_rows=status.input_rows,
            output_rows=status.output_rows, rows_per_second=round(rate) if rate is not None else None, watermarks=dict(status.watermarks),
            last_checkpoint=telling[1], failed_checkpoints=status.failed_checkpoints, **({"restoring": restoring} if restoring else {}),
        )  # fmt: skip

    def notice(self, text: str) -> None:
        """Log ``text`` as a warning."""
        self._log.warning(text)


def _restoring(status: JobStatus) -> list[str]:
    """Return what the live line says about slots that restore: of several the sum, so that the line stays short."""
    slots = [slot for slot in status.slots if slot.restoring is not None]
    if len(slots) <= 1:
        return in_progress(replace(status, slots=tuple(slots), pending_snapshot=None))
    downloaded = sum(slot.restoring.downloaded_bytes for slot in slots if slot.restoring is not None)
    total = sum(slot.restoring.total_bytes for slot in slots if slot.restoring is not None)
    return [f"restoring {len(slots)} slots: {size(downloaded)} of {size(total)}"]


def progress_line(status: JobStatus, rows_per_second: float | None, now_ms: int) -> str:
    """Return the live line: state, batch, rates, watermark, last checkpoint. The most telling first, as narrow terminals cut the end."""
    parts = [status.state.value.lower(), f"batch {status.batch}" if status.batch >= 0 else "no batch yet"]
    parts[1:1] = _restoring(status)
    if rows_per_second is not None:
        parts.append(f"{rows_per_second:,.0f} rows/s")
    known = [watermark for watermark in status.watermarks.values() if watermark is not None]
    if known:
        parts.append(f"watermark {at(min(known)).removesuffix('Z')}")
    if status.last_checkpoint is not None:
        age_s = max(0, now_ms - status.last_checkpoint.completed_ms) // 1_000
        parts.append(f"chk-{status.last_checkpoint.id} {f'{age_s} s' if age_s < 60 else duration(age_s * 1_000)} ago")
    return ", ".join(parts)
