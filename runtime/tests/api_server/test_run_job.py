"""The life of a run: start, API, end, signals. The signals are real ones, sent to this process."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob

from statefulspark.api_server.run.connection_files import ConnectionFile, read_connection
from statefulspark.api_server.run.remedies import what_to_do
from statefulspark.api_server.run.run_job import ExitCode, RunResult, RunSettings, run_job
from statefulspark.api_server.run.signals import Interrupted
from statefulspark.api_server.server import ServerSettings
from statefulspark.coordinator.controls import CheckpointInfo, JobError, JobState, JobStatus, PendingTimers
from statefulspark.coordinator.ongoing_work import PendingSnapshot
from statefulspark.errors import ConflictError, InvalidInputError, UnavailableError


@dataclass
class Recorder:
    """Remembers what it heard; ``on_progress`` is where a test acts."""

    on_progress: Callable[[int], None] = lambda _: None
    notices: list[str] = field(default_factory=list)
    looks: int = 0
    url: str = ""

    def started(self, status: JobStatus, *, url: str, connection_file: str) -> None:
        self.url = url

    def progress(self, status: JobStatus) -> None:
        self.looks += 1
        self.on_progress(self.looks)

    def notice(self, text: str) -> None:
        self.notices.append(text)


def launch(
    job: FakeJob, home: Path, recorder: Recorder, start: Callable[[], FakeJob] | None = None, stop_timeout_s: float = 20.0
) -> RunResult:
    return run_job(
        start or (lambda: job),
        claim=ConnectionFile(home, "turnaround"),
        token=TOKEN,
        settings=RunSettings(poll_s=0.01, stop_timeout_s=stop_timeout_s),
        reporter=recorder,
        clock_ms=lambda: 0,
    )


@pytest.fixture(autouse=True)
def same_handlers_afterwards() -> object:
    """Every test leaves the signal handlers as it found them."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_job_that_finishes(job: FakeJob, tmp_path: Path) -> None:
    """While it runs, the connection file leads to its API; afterwards both are gone."""

    def act(look: int) -> None:
        connection = read_connection(tmp_path, "turnaround")
        assert connection.url == recorder.url
        answer = httpx.get(f"{connection.url}/v1/status", headers={"Authorization": f"Bearer {connection.token}"}, trust_env=False)
        assert answer.json()["name"] == "turnaround"
        job.change(state=JobState.FINISHED)

    recorder = Recorder(act)
    result = launch(job, tmp_path, recorder)
    assert (result.exit_code, result.status.state) == (ExitCode.DONE, JobState.FINISHED)
    assert not (tmp_path / "jobs" / "turnaround.json").exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{recorder.url}/healthz", trust_env=False)


@pytest.mark.parametrize("state", list(JobState))
def test_exit_codes(job: FakeJob, tmp_path: Path, state: JobState) -> None:
    """1 for a failed job, 0 for every other end."""
    if not state.final:
        return
    job.change(state=state)
    assert launch(job, tmp_path, Recorder()).exit_code == (1 if state is JobState.FAILED else 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_stops_with_a_checkpoint(job: FakeJob, tmp_path: Path, number: signal.Signals) -> None:
    """The job is asked once for a stop without savepoint, and the run ends well."""
    recorder = Recorder(lambda look: os.kill(os.getpid(), number) if look == 2 else None)
    result = launch(job, tmp_path, recorder)
    assert [call[:4] for call in job.calls] == [("stop", False, None, False)]
    assert (result.exit_code, result.status.state) == (ExitCode.DONE, JobState.SUSPENDED)
    assert recorder.notices == [f"{number.name}: stopping with a checkpoint. Again: stop at once."]
    assert "file:///state/turnaround/checkpoint-1" in what_to_do(result.status)


def test_the_second_signal_ends_at_once(job: FakeJob, tmp_path: Path) -> None:
    """Also while the stop hangs; the connection file does not stay behind."""
    job.hold = threading.Event()
    recorder = Recorder(lambda _: os.kill(os.getpid(), signal.SIGTERM) if not job.calls or job.entered.is_set() else None)
    with pytest.raises(Interrupted) as caught:
        launch(job, tmp_path, recorder)
    assert caught.value.exit_code == 143
    assert not (tmp_path / "jobs" / "turnaround.json").exists()
    job.hold.set()


def test_the_same_signal_twice_at_once_is_one_request(job: FakeJob, tmp_path: Path) -> None:
    """``timeout`` signals the process and then its group; the checkpoint must not be given up for that."""

    def twice(look: int) -> None:
        if look == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    result = launch(job, tmp_path, Recorder(twice))
    assert [call[0] for call in job.calls] == ["stop"]
    assert (result.exit_code, result.status.state) == (ExitCode.DONE, JobState.SUSPENDED)


def test_a_port_in_use_is_known_before_the_job_starts(job: FakeJob, tmp_path: Path) -> None:
    """Spark's start takes long; nothing of the job is touched before the address is bound."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = RunSettings(server=ServerSettings(port=taken.getsockname()[1]))
        with pytest.raises(InvalidInputError, match="cannot be bound"):
            run_job(
                lambda: pytest.fail("the job was started"),
                claim=ConnectionFile(tmp_path, "turnaround"),
                token=TOKEN,
                settings=settings,
                reporter=Recorder(),
                clock_ms=lambda: 0,
            )


def test_a_signal_during_the_start_ends_at_once(job: FakeJob, tmp_path: Path) -> None:
    """There is nothing to checkpoint yet."""

    def start() -> FakeJob:
        os.kill(os.getpid(), signal.SIGINT)
        return job

    with pytest.raises(Interrupted) as caught:
        launch(job, tmp_path, Recorder(), start)
    assert caught.value.exit_code == 130
    assert job.calls == []


def test_handlers_that_spark_puts_in_place_are_replaced(job: FakeJob, tmp_path: Path) -> None:
    """Pyspark takes SIGINT over when a context starts; the run takes it back."""

    def start() -> FakeJob:
        signal.signal(signal.SIGINT, lambda *_: pytest.fail("Spark's handler ran"))
        return job

    recorder = Recorder(lambda look: os.kill(os.getpid(), signal.SIGINT) if look == 1 else None)
    assert launch(job, tmp_path, recorder, start).status.state is JobState.SUSPENDED


def test_a_stop_that_fails_ends_the_run_with_a_word(job: FakeJob, tmp_path: Path) -> None:
    """Storage is away: the process must still end on SIGTERM; the state is safe up to the last batch."""
    job.failures = {"stop": UnavailableError("s3://b does not answer")}
    recorder = Recorder(lambda look: os.kill(os.getpid(), signal.SIGTERM) if look == 1 else None)
    result = launch(job, tmp_path, recorder)
    assert (result.exit_code, result.abandoned) == (ExitCode.FAILED, True)
    assert "s3://b does not answer" in recorder.notices[-1]
    assert "after batch 41" in recorder.notices[-1]


def test_a_stop_whose_checkpoint_moves_is_not_given_up(job: FakeJob, tmp_path: Path) -> None:
    """The upload of a large state takes longer than the time limit of a stop, which holds for one that stands still."""
    job.failures = {"stop": UnavailableError("no checkpoint completed within 300 s")}

    recorder = Recorder(lambda look: os.kill(os.getpid(), signal.SIGTERM) if look == 1 else None)
    uploading, calls = job.status, [0]

    def status() -> JobStatus:
        calls[0] += 1
        if len(job.calls) == 5:
            job.failures = {}
        pending = PendingSnapshot(id=3, kind="checkpoint", started_ms=1, slots_done=0, slots=1, uploaded_bytes=calls[0], total_bytes=100)
        return replace(uploading(), pending_snapshot=pending)

    job.status = status  # type: ignore[method-assign]
    result = launch(job, tmp_path, recorder)
    assert (result.status.state, len(job.calls)) == (JobState.SUSPENDED, 6)


@pytest.mark.parametrize(("silent_s", "executors", "gives_up"), [(4.0, 0, False), (6.0, 0, True), (29.0, 1, False), (61.0, 1, True)])
def test_a_stop_gives_up_when_no_executor_is_left(job: FakeJob, tmp_path: Path, silent_s: float, executors: int, gives_up: bool) -> None:
    """A namespace that is deleted ends driver and executors together; slots that a rescale starts are only slow."""
    job.executors = bool(executors)
    job.hold = hold = threading.Event()
    asked_at: list[int] = []

    def act(look: int) -> None:
        if look == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if job.entered.is_set():
            job.silent_s = silent_s
            asked_at.append(look)
        if len(asked_at) == 30:
            hold.set()  # the checkpoint is complete after all

    result = launch(job, tmp_path, Recorder(act))
    hold.set()
    assert result.abandoned is gives_up
    assert (result.status.state is JobState.SUSPENDED) is not gives_up


def test_a_stop_waits_for_a_rescale_under_way(job: FakeJob, tmp_path: Path) -> None:
    """A conflict is not the end: the stop is asked for again until it gets its turn."""
    job.failures = {"stop": ConflictError("a rescale is under way")}

    def act(look: int) -> None:
        if look == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if len(job.calls) == 2:
            job.failures = {}

    result = launch(job, tmp_path, Recorder(act))
    assert result.status.state is JobState.SUSPENDED
    assert len(job.calls) >= 3


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The error passes through; the name is free again."""

    def start() -> FakeJob:
        raise InvalidInputError("parallelism 9 is more than maxParallelism 8", field="spec.parallelism")

    with pytest.raises(InvalidInputError, match="maxParallelism"):
        launch(FakeJob(), tmp_path, Recorder(), start)
    with ConnectionFile(tmp_path, "turnaround"):
        pass


def test_the_same_job_does_not_start_twice_here(job: FakeJob, tmp_path: Path) -> None:
    """Refused before Spark is started."""
    with ConnectionFile(tmp_path, "turnaround"), pytest.raises(ConflictError, match="statefulspark stop --job turnaround"):
        launch(job, tmp_path, Recorder(), lambda: pytest.fail("started"))


def test_timers_that_are_left_are_counted_with_what_fires_them(job: FakeJob) -> None:
    """After --until-idle: event-time timers can be drained, processing-time timers need the job to run."""
    timers = {
        "sessions": PendingTimers(number=3, next_event_ms=1_357_041_600_000, next_processing_ms=None),
        "alarms": PendingTimers(number=None, next_event_ms=None, next_processing_ms=1_357_041_600_000),
    }
    job.change(state=JobState.FINISHED, timers=timers)
    sessions, alarms = what_to_do(job.status()).splitlines()
    assert sessions.startswith("About 3 timers of uid 'sessions' have not fired; the next event-time timer is for 2013-01-01 12:00:00")
    assert "--until-idle --drain" in sessions
    assert alarms.startswith("Timers of uid 'alarms' have not fired; the next processing-time timer is for 2013-01-01 12:00:00")
    assert "--drain" not in alarms


def test_what_to_do_names_the_next_step(job: FakeJob) -> None:
    """Per reason: nothing lost where that is so, another checkpoint where the data is damaged."""
    assert what_to_do(job.status()) == ""
    info = CheckpointInfo(id=3, path="file:///c/chk-3", batch=9, completed_ms=1, duration_ms=1, sync_ms=1, size_bytes=1, uploaded_bytes=1)
    job.change(state=JobState.FAILED, last_checkpoint=info, error=JobError(reason="UserFunction", message="ZeroDivisionError"))
    assert "resumes after batch 41, nothing is lost" in what_to_do(job.status())
    job.change(error=JobError(reason="CorruptData", message="chk-3/x"))
    assert "--from" in what_to_do(job.status())
    job.change(error=JobError(reason="Whatever", message="x"))
    assert "report" in what_to_do(job.status())
    job.change(error=None)
    assert "report" in what_to_do(job.status())
