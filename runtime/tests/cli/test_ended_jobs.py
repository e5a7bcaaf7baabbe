"""A job that does not run any more can be inspected: how its last run ended, and what it did."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statefulspark.api_server.run.connection_files import Connection, ConnectionFile
from statefulspark.api_server.run.last_runs import LastRun, recorded
from statefulspark.checkpoint.formats import paths
from statefulspark.cli.launch.progress import PROGRESS_LOGGER
from statefulspark.cli.launch.run_logs import run_logs
from statefulspark.cli.main import app
from statefulspark.coordinator.controls import JobError, JobState
from statefulspark.coordinator.history import HistoryEvent, JobHistory
from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark.job.history.storing import StoredHistory
from statefulspark.logs.levels import LogLevel
from statefulspark.storage.open import open_store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATEFULSPARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run_of(folder: Path, name: str = "payments", started_ms: int = 1_790_000_000_000) -> LastRun:
    return LastRun(name=name, started_ms=started_ms, manifest=str(folder / "job.yaml"), directory=f"file://{folder}/state/{name}")


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def store_history(run: LastRun, attempt: int, message: str) -> None:
    event = HistoryEvent(first_ms=1, last_ms=2, kind="failed", message=message, reason="UserFunction")
    StoredHistory(open_store(run.directory), attempt, lambda: None).save(JobHistory(events=(event,)))


def fail_after_the_start(run: LastRun) -> None:
    with recorded(run) as begin:
        begin()
        raise InvalidInputError("no such column", field="key", remedy="Name one")


def test_a_failed_run_is_shown_with_its_reason_and_what_to_do(home: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.end(JobState.FAILED, JobError(reason="UserFunction", message="ValueError: \x1b[31mno"), "Fix the function")
    for named in (["payments"], [], ["--job", "payments"]):
        text = shown("status", *named)
        assert "FAILED" in text
        assert "failed: UserFunction: ValueError: \\x1b[31mno" in text
        assert "Fix the function" in text
        assert run.directory in text
    document = json.loads(shown("status", "payments", "-o", "json"))
    assert (document["state"], document["reason"], document["manifest"]) == ("FAILED", "UserFunction", run.manifest)
    assert (home / "runs/payments.json").stat().st_mode & 0o077 == 0


def test_a_killed_process_leaves_the_start_of_its_run(home: Path, tmp_path: Path) -> None:
    with recorded(run_of(tmp_path)) as begin:
        begin()
    assert "KILLED" in shown("status", "payments")
    assert "resumes after the last committed batch" in shown("status", "payments")


def test_an_error_is_recorded_once_the_run_has_begun(home: Path, tmp_path: Path) -> None:
    """A second start of a job that runs is refused before that, and must not touch the record of the first."""
    with pytest.raises(ConflictError), recorded(run_of(tmp_path)):
        raise ConflictError("the job already runs")
    assert not (home / "runs/payments.json").exists()
    with pytest.raises(InvalidInputError, match="no such column"):
        fail_after_the_start(run_of(tmp_path))
    assert "failed: InvalidInput: key: no such column. Name one" in shown("status", "payments")


def test_the_job_that_ended_last_is_the_default_and_a_running_one_comes_first(home: Path, tmp_path: Path) -> None:
    run_of(tmp_path, "clicks").end(JobState.FINISHED, None)
    run_of(tmp_path, "payments", started_ms=9_000_000_000_000).write()
    assert "job payments" in shown("status")
    assert "job clicks" in shown("status", "clicks")
    with ConnectionFile(home, "orders") as file:
        file.write(Connection("http://127.0.0.1:1", "a-token-of-twenty-eight-signs"))
        assert "job clicks" in shown("status", "clicks")


@pytest.mark.parametrize("text", ["", "{", '{"version": 2}', "[]"])
def test_a_damaged_record_is_none(home: Path, text: str) -> None:
    (home / "runs").mkdir(parents=True)
    (home / "runs/payments.json").write_text(text)
    result = CliRunner().invoke(app, ["status", "payments"])
    assert (result.exit_code, "no job 'payments' runs" in result.stderr) == (2, True)


def test_the_newest_stored_history_is_shown_by_name_and_by_directory(home: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.end(JobState.FAILED, JobError(reason="UserFunction", message="no"))
    store_history(run, 1, "the first driver")
    store_history(run, 2, "the second driver")
    for named in (["payments"], [run.directory], [str(tmp_path / "state/payments")], []):
        text = shown("history", *named)
        assert "the second driver" in text
        assert "the first driver" not in text
    result = CliRunner().invoke(app, ["history", f"file://{tmp_path}/state/other"])
    assert result.exit_code == 2
    assert "contains no history of a job" in result.stderr


def test_the_checkpoint_directory_of_one_job_is_enough_and_of_several_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path)
    store_history(run, 1, "the only driver")
    open_store(run.directory).put(paths.JOB_KEY, b"{}")
    monkeypatch.chdir(tmp_path)
    for named in ("state", "state/payments", f"file://{tmp_path}/state"):
        assert "the only driver" in shown("history", named)
    open_store(f"file://{tmp_path}/state/refunds").put(paths.JOB_KEY, b"{}")
    result = CliRunner().invoke(app, ["history", "state"])
    assert result.exit_code == 2
    assert "has 2 jobs (payments, refunds)" in result.stderr


def test_a_reason_is_never_cut(home: Path, tmp_path: Path) -> None:
    """Of a traceback, the first line and the one with the error are shown; JSON has it whole."""
    run = run_of(tmp_path)
    run.end(JobState.FAILED, None)
    words = " ".join(f"word{i}" for i in range(60))
    store_history(run, 1, f"{words}\nTraceback (most recent call last):\n  File x\nValueError: not a number")
    cells = [
        line.split("│")[-2].strip() for line in shown("history", "payments").split("failures and changes")[1].splitlines() if "│" in line
    ]
    assert " ".join(cells) == f"{words}: ValueError: not a number"


def test_the_log_of_a_job_is_readable_after_its_end(home: Path, tmp_path: Path, logging_as_before: None) -> None:
    """Of its last run only, without the line of progress every few seconds, and whether or not its process was killed."""
    path = home / "logs/payments.jsonl"
    for started, message in ((1_000, "of an earlier run"), (0, "carrier ZZ is not known")):
        with run_logs("payments", None, LogLevel.INFO, progress=False, master=None, secrets=["a-secret-0123"]) as logs:
            logging.getLogger("flights").warning("%s, password a-secret-0123", message, extra={"slot": 1, "uid": "legs"})
            logging.getLogger(PROGRESS_LOGGER).info("progress")
            assert len(logs.tail.read(after=0, most=9, level=0, slot=None, uid=None)[0]) == 1
        if started:
            path.write_text("damaged\n[]\n" + path.read_text().replace(str(datetime.now(UTC).year), "2020"))
    run = run_of(tmp_path, started_ms=int(time.time() * 1000) - 3_600_000)
    run.write()
    result = CliRunner().invoke(app, ["logs", "payments", "--slot", "1"])
    assert result.exit_code == 0, result.output
    assert "WARNING [slot 1, uid legs] carrier ZZ is not known, password ***" in result.stdout
    assert "of an earlier run" not in result.stdout
    assert "progress" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert "does not run now" in result.stderr
    assert shown("logs", "payments", "--level", "error") == ""


def test_the_page_of_a_job_that_has_ended_is_a_private_file(home: Path, tmp_path: Path) -> None:
    """By its name, and by a directory of which this machine knows no run; it stays, so that it can be loaded again."""
    run = run_of(tmp_path)
    run.end(JobState.FAILED, JobError(reason="UserFunction", message="</script>no"))
    store_history(run, 1, "the only driver")
    page = home / "runs/payments.html"
    for named, state in ((["payments"], '"state": "FAILED"'), ([str(tmp_path / "state/payments")], "the only driver")):
        assert shown("ui", "--print", *named) == f"{page.as_uri()}\n"
        assert page.stat().st_mode & 0o077 == 0
        assert state in page.read_text()
        assert "</script>no" not in page.read_text()
    assert json.loads(shown("ui", "payments", "-o", "json")) == {"name": "payments", "url": page.as_uri()}
