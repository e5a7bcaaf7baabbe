"""What can be found without Spark is found before Spark is started, which takes most of the time of a start."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from statefulspark.config.manifest import validate_job
from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.job.start import start_job as start
from statefulspark.job.start.start_job import RunOptions, start_job
from statefulspark.storage import open as storage


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "open_session", lambda *_, **__: pytest.fail("Spark was started"))
    monkeypatch.setattr(storage, "_PROBE_BUDGET_S", 0.2)


def run(folder: Path, directory: str, options: RunOptions | None = None, **fields: Any) -> None:
    (folder / "job.py").write_text("def pipeline(job):\n    raise AssertionError\n")
    document = {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "clicks"},
        "spec": {"job": {"script": str(folder / "job.py")}, "checkpointing": {"dir": directory, **fields}},
    }
    start_job(validate_job(document), options or RunOptions())


def test_an_s3_store_that_does_not_answer(tmp_path: Path) -> None:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    storage = {"endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1", "accessKeyId": "a", "secretAccessKey": "b"}
    with pytest.raises(UnavailableError):
        run(tmp_path, "s3://state/checkpoints", storage=storage)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StatefulSparkError):
        run(tmp_path, (tmp_path / "file" / "checkpoints").as_uri())
    with pytest.raises(StatefulSparkError):
        run(tmp_path, "file:///proc/nosuch/checkpoints")


def test_a_checkpoint_that_does_not_exist(tmp_path: Path) -> None:
    run_options = RunOptions(restore_from=(tmp_path / "chk-1").as_uri())
    with pytest.raises(InvalidInputError):
        run(tmp_path, (tmp_path / "state").as_uri(), run_options)


@pytest.mark.parametrize(
    ("master", "is_refused"), [(None, True), ("local[2]", True), ("local-cluster[2,1,1024]", True), ("spark://h:7077", False)]
)
@pytest.mark.parametrize("shared_dir", [False, True])
def test_a_folder_that_others_may_write(tmp_path: Path, master: str | None, is_refused: bool, shared_dir: bool) -> None:
    """Nothing in it is read before the user has said that it is shared; a cluster shares it anyway."""
    folder = tmp_path / "state" / "clicks"
    (folder / "chk-1").mkdir(parents=True)
    (folder / "chk-1" / "_metadata").write_bytes(b"hostile")
    folder.chmod(0o777)
    expected = "--shared-dir" if is_refused and not shared_dir else "Spark was started"
    with pytest.raises((StatefulSparkError, pytest.fail.Exception), match=expected):
        run(tmp_path, (tmp_path / "state").as_uri(), RunOptions(master=master, shared_dir=shared_dir))
