"""Arguments of local jobs, their manifest, the rows they keep, and the file that names their coordinator; without Java."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from statefulspark import LocalJob
from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.exchange.rendezvous import announce, present, rendezvous
from statefulspark.job.local.collected_output import CollectedOutput
from statefulspark.job.local.interruptible import Background
from statefulspark.job.local.local_manifest import local_manifest
from statefulspark.storage.local.working_folder import local_job_path, open_local_job_folder


@pytest.mark.parametrize("name", ["", "Clicks", "my job", "1st", "x" * 46, None])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"name: .* lower-case letters"):
        local_manifest(name, 2, "rocksdb", tmp_path)


@pytest.mark.parametrize("backend", ["rocks", "", "my.module:Backend"])
def test_a_backend_that_is_none_is_refused(tmp_path: Path, backend: str) -> None:
    with pytest.raises(InvalidInputError, match=r"backend: .* Choose one of filesystem, memory, rocksdb"):
        local_manifest("clicks", 2, backend, tmp_path)


@pytest.mark.parametrize("backend", ["rocksdb", "filesystem", "memory"])
def test_state_is_stored_below_the_folder(tmp_path: Path, backend: str) -> None:
    """Also if its path must be encoded."""
    spec = local_manifest("clicks", 3, backend, tmp_path / "a b").spec
    assert (spec.parallelism, spec.state_backend.type) == (3, backend)
    assert spec.restart_strategy.exponential_delay.max_backoff == 5_000
    assert spec.checkpointing.dir == (tmp_path / "a b" / "state").as_uri()


@pytest.mark.parametrize("stream", [None, "counts", 5])
def test_what_is_no_stream_is_refused(stream: Any) -> None:
    """Before anything of Spark is used."""
    job = object.__new__(LocalJob)
    with pytest.raises(InvalidInputError, match=r"stream: expected a stream, got .* Pass the result of job.key_by"):
        job.start(stream)
    with pytest.raises(InvalidInputError, match="rows_max: 0 is less than 1"):
        job.start(stream, rows_max=0)


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def collected(rows_max: int) -> CollectedOutput:
    return CollectedOutput(T.StructType([T.StructField("n", T.LongType())]), rows_max)


def test_rows_are_kept_by_batch() -> None:
    """A batch that runs again replaces itself; before the first one there is a table without rows."""
    output = collected(100)
    assert output.table() == numbers()
    for batch, table in [(0, numbers(1, 2)), (1, numbers()), (2, numbers(3)), (2, numbers(4, 5)), (0, numbers(1, 2))]:
        output.keep(table, batch)
    assert output.table().column("n").to_pylist() == [1, 2, 4, 5]
    assert output.dropped == 0


@pytest.mark.parametrize("rows_max", [1, 3, 4, 7])
def test_the_latest_rows_are_kept(rows_max: int) -> None:
    """As many as fit, in the middle of a batch and of one that is larger than all."""
    output = collected(rows_max)
    rows: list[int] = []
    for batch, size in enumerate([2, 3, 1, 9, 0, 2]):
        values = range(len(rows), len(rows) + size)
        rows += values
        output.keep(numbers(*values), batch)
        assert output.table().column("n").to_pylist() == rows[-rows_max:]
        assert output.dropped == max(0, len(rows) - rows_max)


def test_an_endpoint_is_the_one_that_the_file_names(tmp_path: Path) -> None:
    """Of the run that wrote it last; without a run, the error says what to do."""
    there = Endpoint(location="grpc+unix:///tmp/s", secret="first")
    assert present(there) is there
    file = rendezvous(tmp_path / "endpoint")
    with pytest.raises(InvalidInputError, match="local job that does not run"):
        present(file)
    announce(tmp_path / "endpoint", there)
    assert present(file) == there
    announce(tmp_path / "endpoint", Endpoint(location="grpc+unix:///tmp/t", secret="second"))
    assert present(file).secret == "second"


def test_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next job, whose own folder is where its streams expect it and only this user's. Those of living jobs stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "import os, signal; from statefulspark.storage.local.working_folder import *; "
        "open_local_job_folder(local_job_path()); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False, timeout=60)
    assert len(list(tmp_path.iterdir())) == 1
    living = open_local_job_folder(local_job_path())
    path = local_job_path()
    folder = open_local_job_folder(path)
    assert set(tmp_path.iterdir()) == {living.path, path}
    assert path.stat().st_mode & 0o777 == 0o700
    folder.close()
    living.close()
    assert list(tmp_path.iterdir()) == []


def test_a_call_in_the_background_returns_or_raises() -> None:
    """A late one continues; an error comes without the frames of its thread."""
    assert Background(lambda: 5, "five").result(10, "late") == 5
    failing = Background(lambda: 1 / 0, "fail")
    with pytest.raises(ZeroDivisionError) as failed:
        failing.result(10, "late")
    assert "_run" not in [entry.name for entry in failed.traceback]
    release = threading.Event()
    waiting = Background(lambda: release.wait(60), "wait")
    with pytest.raises(UnavailableError, match="still waiting"):
        waiting.result(0.0, "still waiting")
    release.set()
    assert waiting.result(60, "late")
