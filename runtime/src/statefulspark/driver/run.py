"""The life of ``statefulspark run``: claim the name, start the job, serve its API, watch it to its end, stop it on a signal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from statefulspark.driver.api import create_app
from statefulspark.driver.connection import Connection, ConnectionFile
from statefulspark.driver.server import ApiServer, ServerSettings
from statefulspark.driver.signals import StopSignals
from statefulspark.errors import ClosedError, ConflictError
from statefulspark.job.controls import JobControls, JobState, JobStatus

_CONFLICT_PAUSE_S = 0.2


class ExitCode(IntEnum):
    """What the ``run`` command ends with."""

    DONE = 0
    """Finished, suspended with a checkpoint, or canceled as asked."""
    FAILED = 1


class RunReporter(Protocol):
    """Tells a person or a log what happens. Called from the main thread only."""

    def started(self, status: JobStatus, *, url: str, connection_file: str) -> None:
        """Batches run and the API listens at ``url``."""

    def progress(self, status: JobStatus) -> None:
        """A look at the job, every ``poll_s``."""

    def notice(self, text: str) -> None:
        """One sentence about something that happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a run behaves."""

    server: ServerSettings = field(default_factory=ServerSettings)
    poll_s: float = 0.5
    """How often the status is reported; also how late a signal may be noticed."""
    stop_timeout_s: float = 300.0
    """How long a stop asked for by a signal may take for its checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended."""

    status: JobStatus
    exit_code: ExitCode
    abandoned: bool
    """The job could not be stopped cleanly and its threads may still run: end the process without waiting for them."""


def run_job(
    start: Callable[[], JobControls],
    *,
    claim: ConnectionFile,
    token: str,
    settings: RunSettings,
    reporter: RunReporter,
    clock_ms: Callable[[], int],
) -> RunResult:
    """Run a job to its end.

    Args:
        start: Starts the job and returns once it is running (or being restored).
        claim: The job's name on this machine; held while the job lives.
        token: What the API accepts.
        settings: See there.
        reporter: Hears what happens.
        clock_ms: Milliseconds since the epoch.

    Raises:
        Interrupted: A signal came before the job was started, or a second one after it.
        ConflictError: The job already runs on this machine.
        StatefulSparkError: The job could not be started; nothing was touched.
    """
    with StopSignals() as signals, claim:
        job = start()
        signals.graceful()
        with ApiServer(create_app(job, token=token, clock_ms=clock_ms), settings.server) as server:
            claim.write(Connection(server.url, token))
            reporter.started(job.status(), url=server.url, connection_file=str(claim.path))
            stop = _watch(job, signals, settings, reporter)
        status = job.status()
    if stop is not None and stop.error is not None and not status.state.final:
        reporter.notice(
            f"The job could not be stopped with a checkpoint ({stop.error}). Run it again: it goes on after batch {status.batch}."
        )
        return RunResult(status=status, exit_code=ExitCode.FAILED, abandoned=True)
    return RunResult(status=status, exit_code=ExitCode.FAILED if status.state is JobState.FAILED else ExitCode.DONE, abandoned=False)


class _Stop:
    """A stop asked for by a signal, carried out beside the main thread so that a second signal still gets through."""

    def __init__(self, job: JobControls, timeout_s: float) -> None:
        self._job = job
        self._timeout_s = timeout_s
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="stop-on-signal", daemon=True)
        self._thread.start()

    @property
    def failed(self) -> bool:
        return self.error is not None

    def _run(self) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            left_s = max(1.0, deadline_s - time.monotonic())
            try:
                self._job.stop(savepoint=False, target=None, drain=False, timeout_s=left_s)
            except ClosedError:
                return  # it ended by itself meanwhile
            except ConflictError as exc:
                # A rescale or another stop is under way: it ends, or this stop's turn comes.
                if time.monotonic() + _CONFLICT_PAUSE_S >= deadline_s:
                    self.error = exc
                    return
                time.sleep(_CONFLICT_PAUSE_S)
            except Exception as exc:  # noqa: BLE001 - whatever it is, the main thread reports it and ends the run
                self.error = exc
                return
            else:
                return


def _watch(job: JobControls, signals: StopSignals, settings: RunSettings, reporter: RunReporter) -> _Stop | None:
    stop: _Stop | None = None
    while True:
        state = job.wait(settings.poll_s)
        reporter.progress(job.status())
        if state.final or (stop is not None and stop.failed):
            return stop
        if stop is None and signals.asked is not None:
            reporter.notice(f"{signals.asked.name}: stopping with a checkpoint. Again: stop at once.")
            stop = _Stop(job, settings.stop_timeout_s)
