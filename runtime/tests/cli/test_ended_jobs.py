"""A job that does not run any more can be inspected: how its last run ended, and what it did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statefulspark.api_server.connection_files import Connection, ConnectionFile
from statefulspark.api_server.last_runs import LastRun, recorded
from statefulspark.cli.main import app
from statefulspark.coordinator.controls import JobError, JobState
from statefulspark.coordinator.history import HistoryEvent, JobHistory
from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark.job.history.storing import StoredHistory
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
