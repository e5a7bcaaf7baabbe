"""``statefulspark init`` writes a job that is valid, whose test passes and that runs; it never touches a file that exists."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from statefulspark.cli.main import build_app
from statefulspark.config.manifest import load_manifest

FILES = {"job.yaml", "pipeline.py", "test_pipeline.py", "input/clicks.json", "Dockerfile", ".dockerignore", ".gitignore", "README.md"}


def init(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["init", *arguments])


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("clicks", "clicks"),
        ("My Clicks & Söhne", "my-clicks-s-hne"),
        ("2024-clicks", "clicks"),
        ("###", "job"),
        ("on", "on"),
        ("null", "null"),
        ("x" * 44 + "-y", "x" * 44),
    ],
)
def test_the_manifest_is_valid_whatever_the_directory_is_called(tmp_path: Path, folder: str, name: str) -> None:
    """Spaces and umlauts in a path, names that YAML takes for other things, names that are too long."""
    result = init(str(tmp_path / folder), "-o", "json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["name"], set(said["files"])) == (name, FILES)
    assert files_in(tmp_path / folder) == FILES
    job = load_manifest(tmp_path / folder / "job.yaml")
    assert job.metadata.name == name
    assert job.spec.checkpointing.dir == (tmp_path / folder / "checkpoints").as_uri()
    assert "{{" not in "".join((tmp_path / folder / file).read_text() for file in FILES)


def test_the_tests_of_a_new_job_pass(tmp_path: Path) -> None:
    """Without Spark, and they fail if the function is wrong."""
    assert init(str(tmp_path / "clicks")).exit_code == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "clicks")]
    # Options of the run that this test is part of, such as a base folder, do not suit the tests of the job.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    passed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "2 passed" in passed.stdout
    pipeline = tmp_path / "clicks" / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("or 0) + 1", "or 0) + 2"))
    failed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120)
    assert failed.returncode == 1


@pytest.mark.slow
def test_a_new_job_runs(tmp_path: Path) -> None:
    """From its own folder, as the README says, in a path with a space; what it counts can be worked out by hand."""
    folder = tmp_path / "my clicks"
    assert init(str(folder)).exit_code == 0
    pipeline = folder / "pipeline.py"
    pipeline.write_text(pipeline.read_text() + "\nprint('imported')\n")
    command = [sys.executable, "-m", "statefulspark.cli.main", "run", "job.yaml", "--until-idle", "--no-progress", "-o", "json"]
    environment = os.environ | {"STATEFULSPARK_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "FINISHED"
    assert "imported" in done.stderr.splitlines()
    rows = pd.concat([pd.read_parquet(path) for path in sorted((folder / "output").glob("*.parquet"))])
    assert sorted(rows.itertuples(index=False, name=None)) == [("ada", 1), ("ada", 2), ("ada", 3), ("ben", 1), ("ben", 2), ("cleo", 1)]
    listed = CliRunner().invoke(build_app(), ["list", str(folder / "checkpoints"), "-o", "json"])
    (stored,) = json.loads(listed.stdout)["jobs"]
    assert (stored["name"], stored["parallelism"], stored["problem"]) == ("my-clicks", 2, None)


def test_the_image_gets_the_files_and_not_the_state(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    assert init(str(folder)).exit_code == 0
    assert "COPY . /opt/job" in (folder / "Dockerfile").read_text()
    ignored = (folder / ".dockerignore").read_text().split()
    job = load_manifest(folder / "job.yaml")
    for url in (job.spec.checkpointing.dir, job.spec.checkpointing.savepoint_dir):
        assert url is not None
        assert f"{url.rpartition('/')[2]}/" in ignored
    assert not any(file.split("/")[0] + "/" in ignored for file in FILES)


@pytest.mark.parametrize("file", sorted(FILES))
def test_an_existing_file_is_never_overwritten(tmp_path: Path, file: str) -> None:
    """Not even if it is a link that leads nowhere; nothing else is written then."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(tmp_path / "nowhere")
    result = init(str(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"has {file} already" in result.stderr
    assert files_in(tmp_path) == set()
    assert [each.name for each in tmp_path.rglob("*") if not each.is_dir()] == [path.name]


def test_files_beside_the_new_ones_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert init(str(tmp_path), "--name", "notes").exit_code == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["Clicks", "a" * 46, "a: b", "", "-x", "{{name}}", "1"])
def test_a_name_that_no_job_may_have_is_refused(tmp_path: Path, name: str) -> None:
    result = init(str(tmp_path / "new"), "--name", name)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: --name: ")
    assert not (tmp_path / "new").exists()


def test_a_full_disk_leaves_no_half_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third file cannot be written."""
    opened = Path.open

    def full(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "test_pipeline.py":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", full)
    result = init(str(tmp_path / "new"))
    assert result.exit_code == 2, result.output
    assert "No space left on device" in result.stderr
    assert files_in(tmp_path) == set()


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "clicks").write_text("a file")
    result = init(str(tmp_path / "clicks"))
    assert result.exit_code == 2, result.output
    assert "error: DIRECTORY: " in result.stderr
    assert (tmp_path / "clicks").read_text() == "a file"
