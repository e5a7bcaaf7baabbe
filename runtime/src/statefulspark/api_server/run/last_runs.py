"""The last run of each job on this machine, so that a job that has ended can be inspected: how it ended, why, and where its state and log are.

``<home>/runs/<name>.json`` is readable by its owner only. A run writes it when it starts and again when it ends; a process that was killed leaves
the first version.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from statefulspark.api_server.run.connection_files import NAME, home_directory
from statefulspark.coordinator.controls import JobError, JobState
from statefulspark.errors import StatefulSparkError

_BYTES_MAX: Final = 1 << 20
_ERROR_MAX: Final = 65_536


class LastRun(BaseModel):
    """A run of a job that is over, or whose process was killed."""

    model_config = ConfigDict(extra="ignore")

    version: Literal[1] = 1
    name: str
    state: JobState | Literal["KILLED"] = "KILLED"
    """State at the end; KILLED if the process ended without a word."""
    started_ms: int
    ended_ms: int | None = None
    manifest: str
    directory: str
    """URL of the job's folder in storage."""
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    log_file: str | None = None
    reason: str | None = None
    error: Annotated[str, Field(max_length=_ERROR_MAX)] | None = None
    advice: str = ""

    def end(self, state: JobState, error: JobError | None, advice: str = "") -> None:
        """Record the end of the run."""
        self.state, self.ended_ms, self.advice = state, now_ms(), advice
        if error is not None:
            self.reason, self.error = error.reason, error.message[:_ERROR_MAX]
        self.write()

    def write(self) -> None:
        """Replace the record of the job. A disk that is full or read-only costs the record, never the run."""
        path = _path(self.name)
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.{os.getpid()}")
            part.touch(mode=0o600)
            part.write_text(self.model_dump_json())
            part.replace(path)


@contextlib.contextmanager
def recorded(run: LastRun) -> Iterator[Callable[[], None]]:
    """Yield the function that records the start of the run, and record an error that ends it after that.

    Raises:
        StatefulSparkError: The error of the block.
    """
    begun = False

    def begin() -> None:
        nonlocal begun
        begun = True
        run.write()

    try:
        yield begin
    except StatefulSparkError as error:
        if begun:
            run.end(JobState.FAILED, JobError.of(error))
        raise


def last_run(name: str | None) -> LastRun | None:
    """Return the last run of a job on this machine, or None if there is no record of it.

    Args:
        name: Name of the job; None for the job that ended last.
    """
    if name is not None:
        return _read(_path(name)) if NAME.fullmatch(name) else None
    found = [run for path in _path("x").parent.glob("*.json") if (run := _read(path)) is not None]
    return max(found, key=lambda run: run.ended_ms or run.started_ms, default=None)


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _path(name: str) -> Path:
    return home_directory(os.environ, Path.home()) / "runs" / f"{name}.json"


def _read(path: Path) -> LastRun | None:
    """A record that cannot be read, is damaged or of a later release is none: the job's state does not depend on it."""
    try:
        with path.open("rb") as file:
            return LastRun.model_validate_json(file.read(_BYTES_MAX))
    except (OSError, ValidationError):
        return None
