"""Python workers run this interpreter and import PySpark from where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from statefulspark.job.spark.worker_python import worker_environment

ARCHIVE = f"{Path(pyspark.__file__).parent}/python/lib/pyspark.zip"


def run_worker(*arguments: str, path: str | None) -> list[str]:
    """Start the interpreter as Spark does, from another folder, and return the lines that it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | worker_environment({})
    if path is not None:
        environment["PYTHONPATH"] = path
    command = [environment["PYSPARK_PYTHON"], *arguments]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_archive_is_taken_off_and_nothing_else(tmp_path: Path) -> None:
    others = [str(tmp_path / name) for name in ("mine", "with space", "star *", "pyspark.zip")]
    (tmp_path / "star of the sea").touch()
    script = "import os, sys; print(sys.executable); print(os.environ['PYTHONPATH']); import pyspark; print(pyspark.__file__)"
    for path in (":".join([ARCHIVE, *others]), ":".join([*others, ARCHIVE, ARCHIVE.replace("pyspark.zip", "py4j-0.0-src.zip")])):
        executable, left, package = run_worker("-c", script, path=path)
        assert executable == sys.executable
        assert left == ":".join(others)
        assert package == pyspark.__file__


def test_without_a_path_and_with_odd_arguments() -> None:
    assert run_worker("-c", "import sys; print(sys.argv[1:])", "", "a b", "$HOME", path=None) == [str(["", "a b", "$HOME"])]


def test_another_sparks_archive_stays(tmp_path: Path) -> None:
    """Also when the folder is this one by another name, the archive is not needed."""
    assert worker_environment({"SPARK_HOME": str(tmp_path)}) == {"PYSPARK_PYTHON": sys.executable}
    (tmp_path / "link").symlink_to(Path(pyspark.__file__).parent)
    assert worker_environment({"SPARK_HOME": str(tmp_path / "link")}) == worker_environment({})


def test_a_wrapper_that_cannot_be_executed_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statefulspark.job.spark.worker_python._WRAPPER", tmp_path / "missing")
    assert worker_environment({}) == {"PYSPARK_PYTHON": sys.executable}
