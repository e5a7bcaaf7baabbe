"""``statefulspark cancel`` ends a job without a checkpoint, and says what became of its state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob
from typer.testing import CliRunner, Result

from statefulspark.api_server.run.connection_files import Connection, ConnectionFile
from statefulspark.cli.main import build_app
from statefulspark.coordinator.controls import Cancellation, JobState
from statefulspark.errors import ClosedError, UnavailableError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STATEFULSPARK_HOME", str(tmp_path))
    with ConnectionFile(tmp_path, "turnaround") as claim:
        claim.write(Connection(url, TOKEN))
        yield


def cancel(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["cancel", "--job", "turnaround", *arguments])


def test_state_that_is_kept(job: FakeJob) -> None:
    """The job resumes from there; its last checkpoint can be copied from the output."""
    job.trigger_checkpoint(1)
    job.canceled = Cancellation(deleted=False)
    result = cancel()
    assert result.exit_code == 0, result.output
    assert job.calls[1:] == [("cancel",)], "no checkpoint"
    assert result.stderr == "waiting for the job to be canceled, for at most 600 s\n"
    assert result.stdout == (
        "job turnaround CANCELED\n"
        "No checkpoint was taken. Its state is kept: run the manifest again to resume after batch 41. "
        "Its last checkpoint is file:///state/turnaround/checkpoint-1.\n"
    )
    again = json.loads(cancel("-o", "json").stdout)
    assert (again["state"], again["canceled"]) == ("CANCELED", {"deleted": False, "problem": None})


def test_state_that_is_deleted(job: FakeJob) -> None:
    job.canceled = Cancellation(deleted=True)
    result = cancel()
    assert "Its checkpoints and changelogs were deleted" in result.stdout
    assert "savepoints stay" in result.stdout
    assert "resume" not in result.stdout


def test_state_that_could_not_be_deleted(job: FakeJob) -> None:
    """The job has ended all the same."""
    job.canceled = Cancellation(deleted=False, problem="s3://bucket does not answer")
    result = cancel()
    assert result.exit_code == 0
    assert "were not all deleted: s3://bucket does not answer. Make sure that storage answers" in result.stdout


def test_a_job_that_cannot_be_canceled(job: FakeJob) -> None:
    job.failures["cancel"] = UnavailableError("slot 0 does not answer")
    result = cancel()
    assert (result.exit_code, result.stdout) == (1, "")
    assert "slot 0 does not answer" in result.stderr
    job.failures["cancel"] = ClosedError("the job has ended (FINISHED)")
    assert cancel().exit_code == 1
    assert job.status().state is JobState.RUNNING
