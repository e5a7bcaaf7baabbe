"""The life of ``statefulspark run``: claims the name, starts the job, serves its API, monitors it to its end, and stops it on a signal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol

from statefulspark.api_server.api import create_app
from statefulspark.api_server.run.connection_files import Connection, ConnectionFile
from statefulspark.api_server.run.signals import StopSignals
from statefulspark.api_server.server import ApiServer, ServerSettings, bind
from statefulspark.coordinator.controls import JobControls, JobError, JobState, JobStatus
from statefulspark.coordinator.waiting import while_it_moves
from statefulspark.errors import ClosedError, ConflictError, JvmLostError, StatefulSparkError, UnavailableError
from statefulspark.logs.tail import LogTail

_CONFLICT_PAUSE_S = 0.2
_JVM_LOST = JobError.of(JvmLostError("")).reason
_LOSS_SHOWS_S = 2.0
"""Maximum time until the job notices that its JVM has ended; a stop may notice it first."""


class ExitCode(IntEnum):
    """Exit codes of the ``run`` command."""

    DONE = 0
    """Finished, suspended with a checkpoint, or canceled as asked."""
    FAILED = 1


class RunReporter(Protocol):
    """Tells a person or a log what happens. Called from the main thread only."""

    def started(self, status: JobStatus, *, url: str, connection_file: str) -> None:
        """Batches run and the API listens at ``url``."""

    def progress(self, status: JobStatus) -> None:
        """Report the status, every ``poll_s``."""

    def notice(self, text: str) -> None:
        """One sentence about something that happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of a run."""

    server: ServerSettings = field(default_factory=ServerSettings)
    poll_s: float = 0.5
    """Interval between status reports; also the maximum delay of a signal."""
    stop_timeout_s: float = 300.0
    """For how long the checkpoint of a stop that was requested by a signal may not move."""
    slots_gone_s: float = 5.0
    """Such a stop is abandoned if no slot has sent a heartbeat (one a second) for this long and no executor is connected: they are ending too, as
    when the namespace is deleted, and storage holds all that a final checkpoint would."""
    slots_silent_s: float = 60.0
    """The same while executors are connected: on a busy machine, the slots of a rescale may need half a minute until their first heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Result of a run."""

    status: JobStatus
    exit_code: ExitCode
    abandoned: bool
    """The job could not be stopped cleanly and its threads may still run: end the process without waiting for them."""
    kept: tuple[int, ...] | None = None
    """Numbers of the checkpoints in the job's folder; None if they are not known."""


def run_job(
    start: Callable[[], JobControls],
    *,
    claim: ConnectionFile,
    token: str,
    settings: RunSettings,
    reporter: RunReporter,
    clock_ms: Callable[[], int],
    tail: LogTail | None = None,
) -> RunResult:
    """Run a job to its end.

    Args:
        start: Starts the job and returns once it is running (or being restored).
        claim: The job's name on this machine; held while the job lives.
        token: Bearer token of the API.
        settings: See there.
        reporter: Hears what happens.
        clock_ms: Milliseconds since the epoch.
        tail: The log records that the API shows.

    Raises:
        Interrupted: A signal came before the job was started, or a second one after it.
        ConflictError: The job already runs on this machine.
        StatefulSparkError: The job could not be started; nothing was touched.
    """
    with StopSignals() as signals, claim, closing(bind(settings.server)) as listener:
        job = start()
        signals.graceful()
        with ApiServer(create_app(job, token=token, clock_ms=clock_ms, tail=tail), settings.server, listener) as server:
            claim.write(Connection(server.url, token))
            reporter.started(job.status(), url=server.url, connection_file=str(claim.path))
            stop = _watch(job, signals, settings, reporter)
            if stop is not None and stop.failed:
                job.wait(_LOSS_SHOWS_S)
        status, kept = job.status(), _kept(job)
    if signals.asked is not None and status.error is not None and status.error.reason == _JVM_LOST:
        # The signal also ended the JVM, which is part of the stop.
        reporter.notice(
            "Spark's JVM ended before the final checkpoint: the next start resumes from the last one and the changelogs after it."
        )
        status = replace(status, state=JobState.SUSPENDED, error=None)
    if stop is not None and stop.error is not None and not status.state.final:
        reporter.notice(
            f"The job could not be stopped with a checkpoint ({stop.error}). Run it again to resume after batch {status.batch}."
        )
        return RunResult(status=status, exit_code=ExitCode.FAILED, abandoned=True)
    exit_code = ExitCode.FAILED if status.state is JobState.FAILED else ExitCode.DONE
    return RunResult(status=status, exit_code=exit_code, abandoned=False, kept=kept)


def _kept(job: JobControls) -> tuple[int, ...] | None:
    try:
        return tuple(info.id for info in job.checkpoints() if info.kind == "checkpoint")
    except StatefulSparkError:
        return None


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

    def see(self, settings: RunSettings) -> None:
        """Stops waiting when no slot is left and none comes back: a checkpoint would hold no more than storage does already."""
        silence_s = self._job.silence_s()
        if self.error is not None or silence_s <= settings.slots_gone_s:
            return
        if not self._job.has_executors():
            self.error = UnavailableError(f"the executors have ended, and no slot has sent a heartbeat for {settings.slots_gone_s:.0f} s")
        elif silence_s > settings.slots_silent_s:
            self.error = UnavailableError(f"no slot has sent a heartbeat for {settings.slots_silent_s:.0f} s")

    def _position(self) -> tuple[int, int]:
        status = self._job.status()
        return status.batch, status.pending_snapshot.uploaded_bytes if status.pending_snapshot is not None else 0

    def _run(self) -> None:
        try:
            while_it_moves(self._stop_once, self._position)
        except ClosedError:
            return  # it ended by itself meanwhile
        except Exception as exc:  # noqa: BLE001 - whatever it is, the main thread reports it and ends the run
            self.error = exc

    def _stop_once(self) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            left_s = max(1.0, deadline_s - time.monotonic())
            try:
                self._job.stop(savepoint=False, target=None, drain=False, timeout_s=left_s)
            except ConflictError:
                # A rescale or another stop is under way: it ends, or this stop's turn comes.
                if time.monotonic() + _CONFLICT_PAUSE_S >= deadline_s:
                    raise
                time.sleep(_CONFLICT_PAUSE_S)
            else:
                return


def _watch(job: JobControls, signals: StopSignals, settings: RunSettings, reporter: RunReporter) -> _Stop | None:
    stop: _Stop | None = None
    while True:
        state = job.wait(settings.poll_s)
        reporter.progress(job.status())
        if stop is not None:
            stop.see(settings)
        if state.final or (stop is not None and stop.failed):
            return stop
        if stop is None and signals.asked is not None:
            reporter.notice(f"{signals.asked.name}: stopping with a checkpoint. Again: stop at once.")
            stop = _Stop(job, settings.stop_timeout_s)
