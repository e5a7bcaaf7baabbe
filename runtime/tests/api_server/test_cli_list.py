"""``statefulspark list``: the jobs that run here, against live servers, and the jobs in a checkpoint directory."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob
from typer.testing import CliRunner, Result

from statefulspark.api_server.run.connection_files import Connection, ConnectionFile
from statefulspark.checkpoint.formats.documents import encode_document
from statefulspark.checkpoint.formats.records import JobIdentity
from statefulspark.cli.launch import list as command
from statefulspark.cli.main import build_app

GOLDEN = Path(__file__).resolve().parents[1] / "checkpoint" / "golden" / "savepoint-memory-v1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATEFULSPARK_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["list", *arguments], env={"COLUMNS": "80"})


def test_no_job(home: Path) -> None:
    assert "no job runs on this machine" in cli().stdout
    assert json.loads(cli("-o", "json").stdout) == {"jobs": []}


def test_jobs_that_run_answer_or_hang(home: Path, job: FakeJob, url: str, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One table of at most 80 columns; a job that does not answer does not hide the others; the token is not shown."""
    monkeypatch.setattr(command, "_REQUEST_S", 5.0)
    name = "a-job-with-a-very-long-name-that-is-cut-here"
    with ConnectionFile(home, name) as first, ConnectionFile(home, "hangs") as second, ConnectionFile(home, "starting"):
        first.write(Connection(url, TOKEN))
        second.write(Connection(silent, TOKEN))
        result = cli()
        assert result.exit_code == 0, result.output
        assert "RUNNING" in result.stdout
        assert "no answer" in result.stdout
        assert "a-job-with-a-very-long-name-tha~" in result.stdout
        assert all(len(line) <= 80 for line in result.stdout.splitlines()), result.stdout
        assert "warning: hangs: " in result.stderr
        answer = cli("-o", "json")
        jobs = {each["name"]: each for each in json.loads(answer.stdout)["jobs"]}
        assert set(jobs) == {name, "hangs"}
        assert (jobs[name]["url"], jobs[name]["status"]["batch"], jobs[name]["problem"]) == (url, 41, None)
        assert jobs["hangs"]["status"] is None
        assert TOKEN not in result.output + answer.output


def test_dead_jobs_are_not_listed_and_their_files_are_removed(home: Path) -> None:
    (home / "jobs").mkdir()
    for suffix in ("json", "lock"):
        (home / "jobs" / f"dead.{suffix}").write_text("{}")
    assert json.loads(cli("-o", "json").stdout) == {"jobs": []}
    assert list((home / "jobs").iterdir()) == []


def test_a_file_that_others_can_read_is_a_warning(home: Path, url: str) -> None:
    with ConnectionFile(home, "turnaround") as claim:
        claim.write(Connection(url, TOKEN))
        claim.path.chmod(0o644)
        result = cli()
        assert result.exit_code == 0
        assert "open to others" in result.stderr


def stored(folder: Path, name: str, *numbers: int) -> Path:
    """A job's folder; its checkpoints are copies of a golden one."""
    folder.mkdir(parents=True)
    (folder / "_job").write_bytes(encode_document("job", JobIdentity(name=name, max_parallelism=128)))
    for number in numbers:
        shutil.copytree(GOLDEN, folder / f"chk-{number}")
    return folder


def test_jobs_in_a_checkpoint_directory(tmp_path: Path) -> None:
    """The newest complete checkpoint counts; a job without one, and one with a damaged identity are listed too."""
    whole = stored(tmp_path / "clicks", "clicks", 3, 12)
    (stored(tmp_path / "half", "half", 7) / "chk-9").mkdir()
    (tmp_path / "half" / "chk-9" / "_metadata").write_bytes(b"damaged")
    stored(tmp_path / "new", "new")
    (stored(tmp_path / "odd", "odd") / "_job").write_bytes(b"damaged")
    shutil.copytree(GOLDEN, tmp_path / "savepoint-clicks-1")
    (tmp_path / "lost+found").mkdir()
    result = cli(str(tmp_path), "-o", "json")
    assert result.exit_code == 0, result.output
    jobs = {each["job_id"]: each for each in json.loads(result.stdout)["jobs"]}
    assert set(jobs) == {"clicks", "half", "new", "odd"}
    assert jobs["clicks"]["last_checkpoint"] == (whole / "chk-12").as_uri()
    assert jobs["clicks"]["size_bytes"] == sum(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    assert (jobs["clicks"]["checkpoints"], jobs["clicks"]["max_parallelism"]) == (2, 128)
    assert jobs["clicks"]["age_s"] > 0
    assert jobs["half"]["last_checkpoint"].endswith("/chk-7")
    assert (jobs["new"]["last_checkpoint"], jobs["new"]["age_s"], jobs["new"]["problem"]) == (None, None, None)
    assert (jobs["odd"]["name"], jobs["odd"]["problem"]) != (None, None)
    table = cli(str(tmp_path))
    assert all(len(line) <= 100 for line in table.stdout.splitlines() if not line.startswith("jobs in")), table.stdout
    assert "chk-12" in table.stdout
    assert "warning: odd: " in table.stderr
    one = cli(str(whole), "-o", "json")
    assert [each["job_id"] for each in json.loads(one.stdout)["jobs"]] == ["clicks"]


def test_a_folder_without_jobs_is_wrong_input(tmp_path: Path) -> None:
    result = cli(str(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "holds no jobs" in result.stderr
    assert "checkpointing.dir" in result.stderr
