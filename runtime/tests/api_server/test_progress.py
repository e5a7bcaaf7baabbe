"""What a run shows: rates, the live line, log records; and that logs never show the values of local variables."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace

import pytest
import structlog
from rich.console import Console
from runtime.tests.api_server.fake_job import START_MS, FakeJob

from statefulspark.api_server.instants import at
from statefulspark.cli.common.job_tables import duration, size
from statefulspark.cli.launch.log_output import configure_logging
from statefulspark.cli.launch.progress import LogReporter, TerminalReporter, Throughput, progress_line
from statefulspark.coordinator.controls import JobStatus
from statefulspark.coordinator.ongoing_work import SlotRestoring


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_throughput_is_that_of_the_last_ten_seconds() -> None:
    """Not of the whole run: a rate that has changed is seen; a count that starts anew is no negative rate."""
    clock = Clock()
    throughput = Throughput(clock)
    assert throughput.update(0) is None
    rows = 0
    rate: float | None = None
    for second in range(1, 61):
        clock.now_s = second
        rows += 1_000 if second <= 30 else 5_000
        rate = throughput.update(rows)
    assert rate == 5_000
    clock.now_s = 61
    assert throughput.update(10) is None
    clock.now_s = 62
    assert throughput.update(30) == 20


def test_the_live_line_says_the_most_telling_first(job: FakeJob) -> None:
    """State, batch, rate, watermark, age of the last checkpoint; unknown things are left out."""
    job.trigger_checkpoint(1)
    line = progress_line(job.status(), 12_345.6, START_MS + 5_000)
    assert line == "running, batch 41, 12,346 rows/s, watermark 2013-01-01 12:00:00, chk-1 4 s ago"
    assert len(line) <= 78  # and the spinner
    early = replace(job.status(), batch=-1, watermarks={"u": None}, last_checkpoint=None)
    assert progress_line(early, None, 0) == "running, no batch yet"


def restoring(job: FakeJob, *downloaded: int | None) -> JobStatus:
    """The status of a job whose slots have downloaded so many of 4 GiB each; None of one that has not reported."""
    slots = tuple(
        replace(slot, state="RESTORING", restoring=SlotRestoring(downloaded_bytes=done, total_bytes=4 << 30) if done is not None else None)
        for slot, done in zip(job.status().slots, downloaded, strict=True)
    )
    return replace(job.status(), slots=slots, batch=-1, watermarks={})


def test_the_live_line_says_how_much_of_the_state_is_there(job: FakeJob) -> None:
    """Of one slot by its number, of several the sum; nothing of slots that have not reported."""
    assert progress_line(restoring(job, None, 1_288_490_189), None, 0) == "running, restoring slot 1: 1.2 GiB of 4.0 GiB, no batch yet"
    assert progress_line(restoring(job, 1 << 30, 2 << 30), None, 0) == "running, restoring 2 slots: 3.0 GiB of 8.0 GiB, no batch yet"
    assert progress_line(restoring(job, None, None), None, 0) == "running, no batch yet"


def test_the_log_tells_a_restore_when_it_begins_now_and_then_and_when_it_ends(
    job: FakeJob, capsys: pytest.CaptureFixture[str], logging_as_before: None
) -> None:
    configure_logging(None)
    clock = Clock()
    reporter = LogReporter(clock_s=clock)
    for second in range(25):
        clock.now_s = second
        reporter.progress(restoring(job, None, second << 20) if second < 15 else job.status())
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [record.get("restoring") for record in records] == [
        ["restoring slot 1: 0 B of 4.0 GiB"],
        ["restoring slot 1: 10.0 MiB of 4.0 GiB"],
        None,
    ]


def test_a_terminal_shows_notices_and_no_token(job: FakeJob) -> None:
    """Where the API is and where the token is kept."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with TerminalReporter(console, clock_s=Clock(), clock_ms=lambda: START_MS) as reporter:
        reporter.started(job.status(), url="http://127.0.0.1:4040", connection_file="/home/me/.statefulspark/jobs/turnaround.json")
        reporter.progress(job.status())
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "API http://127.0.0.1:4040, token in /home/me/.statefulspark/jobs/turnaround.json" in text


def test_the_log_tells_changes_at_once_and_the_rest_now_and_then(
    job: FakeJob, capsys: pytest.CaptureFixture[str], logging_as_before: None
) -> None:
    """One record per change of state or new checkpoint, else one in ten seconds."""
    configure_logging(None)
    clock = Clock()
    reporter = LogReporter(clock_s=clock)
    for half_second in range(40):
        clock.now_s = half_second / 2
        if half_second == 10:
            job.trigger_checkpoint(1)
        reporter.progress(job.status())
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [record["last_checkpoint"] for record in records] == [None, 1, 1]
    assert records[-1]["watermarks"] == {"turnaround": 1_357_041_600_000, "carried": None}


@pytest.mark.parametrize("terminal", [True, False])
def test_logs_show_tracebacks_but_no_values_of_variables(
    capsys: pytest.CaptureFixture[str], logging_as_before: None, terminal: bool
) -> None:
    """Rich tracebacks would print locals, and with them tokens and keys of rows."""
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    configure_logging(console if terminal else None)
    word = "secret-"
    held = word + "0123456789"
    for logger in (logging.getLogger("plain"), structlog.get_logger("structured")):
        try:
            raise RuntimeError(word + "outside")
        except RuntimeError:
            logger.exception("went wrong")
    text = console.file.getvalue() if terminal else capsys.readouterr().err  # type: ignore[attr-defined]  # a StringIO
    assert text.count("went wrong") == 2
    assert text.count("RuntimeError: secret-outside") == 2
    assert held not in text


def test_records_of_both_libraries_look_alike(capsys: pytest.CaptureFixture[str], logging_as_before: None) -> None:
    """One JSON object per line, with the fields a log store needs; what libraries say below WARNING is left out."""
    configure_logging(None)
    logging.getLogger("plain").info("batch %s done", 7, extra={"slot": 1})
    structlog.get_logger("structured").info("batch done", slot=1, path=object)
    logging.getLogger("uvicorn.error").info("Started server process")
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(record["event"], record["slot"], record["level"], record["logger"]) for record in records] == [
        ("batch 7 done", 1, "info", "plain"),
        ("batch done", 1, "info", "structured"),
    ]


def test_numbers_for_people() -> None:
    """Units at their borders; the extreme watermarks in words."""
    assert [duration(ms) for ms in (0, 999, 1_000, 59_949, 60_000, 200_000)] == [
        "0 ms",
        "999 ms",
        "1.0 s",
        "59.9 s",
        "1 min 0 s",
        "3 min 20 s",
    ]
    assert [size(count) for count in (0, 1023, 1024, 3_000_000, 2**30, 5 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "2.9 MiB",
        "1.0 GiB",
        "5.0 TiB",
    ]
    assert (at(0), at(2**63 - 1), at(-(2**63))) == ("1970-01-01 00:00:00Z", "end of time", "beginning of time")
