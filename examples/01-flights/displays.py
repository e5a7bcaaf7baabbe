"""What a person sees while the demo runs: a progress line, the events above it, and the closing summary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from statefulspark.api_server.models.job import StatusModel
from statefulspark.coordinator.controls import JobState

PLAIN_LINE_EVERY_S = 10.0


class Display:
    """Progress of one run on a terminal; without a terminal a plain line every ten seconds."""

    def __init__(self, console: Console, rows: int) -> None:
        self._console = console
        self._started_s = time.monotonic()
        self._plain_s = self._started_s
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.fields[day]}"),
            BarColumn(bar_width=16),
            TextColumn("{task.completed:,.0f} rows  {task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("flights", total=rows, day="starting  ", detail="")

    def __enter__(self) -> Self:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop drawing; the last state stays on the screen."""
        self._progress.stop()

    def show(self, status: StatusModel) -> None:
        """Draw a status."""
        watermark_ms = max((value for value in status.watermarks.values() if value is not None), default=None)
        day = f"{datetime.fromtimestamp(watermark_ms / 1000, UTC):%d %b %Y}" if watermark_ms is not None else "starting  "
        checkpoint = status.last_checkpoint.id if status.last_checkpoint else "-"
        state = "" if status.state is JobState.RUNNING else f"  {status.state.value.lower()}"
        detail = f"batch {status.batch}  chk {checkpoint}  {status.parallelism} slots{state}"
        self._progress.update(self._task, completed=status.input_rows, day=day, detail=detail)
        now_s = time.monotonic()
        if not self._console.is_terminal and now_s - self._plain_s >= PLAIN_LINE_EVERY_S:
            self._plain_s = now_s
            self.event(f"{day}  {status.input_rows:,} rows  {detail}")

    def event(self, text: str) -> None:
        """Print a line that stays, with the time since the start."""
        self._console.print(f"[dim]{time.monotonic() - self._started_s:6.1f} s[/dim]  {text}", highlight=False)


def summary(console: Console, lines: Sequence[tuple[str, str]], proof: str, *, title: str, proved: bool) -> None:
    """Print the closing table and the verdict."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="dim")
    table.add_column()
    for name, value in lines:
        table.add_row(name, value)
    table.add_row("", "")
    table.add_row("PROOF", f"[bold {'green' if proved else 'red'}]{proof}")
    console.print(Panel(table, title=title, expand=False, border_style="green" if proved else "red"))
