"""The same on S3 (moto over HTTP): checkpoint, rescale, savepoint copied inside the storage, and the commands with --endpoint."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature
from runtime.tests.checkpoint.one_life import life, resumes
from runtime.tests.s3_server import s3_server
from typer.testing import CliRunner

from statefulspark.checkpoint.catalog import list_checkpoints, newest, open_checkpoint
from statefulspark.checkpoint.formats.paths import common_root
from statefulspark.cli import main
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """URL of the service."""
    with s3_server() as server:
        yield server.endpoint


def test_a_job_on_s3(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One life: batches, checkpoints, retention, another number of slots, a savepoint, and looking at it all."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    settings = StorageSettings(endpoint=endpoint, region="us-east-1")

    def opened(url: str) -> ObjectStore:
        return open_store(url, settings)

    root = f"s3://bucket/{uuid.uuid4().hex}"
    lived = life(root, opened, tmp_path)
    mini, expected, target, url = lived.mini, lived.expected, lived.savepoints, lived.url
    mini.job.delete([info.key for info in mini.job.list("chk-2/")])
    found = newest(mini.job)
    assert found is not None
    assert found.folder == "chk-3"
    resumes(lived)
    assert [summary.status for summary in list_checkpoints(f"{root}/savepoints", opened)] == ["complete"]
    assert open_checkpoint(url, opened).metadata.kind == "savepoint"
    options = ["--endpoint", endpoint, "--region", "us-east-1", "-o", "json"]
    listed = CliRunner().invoke(main.app, ["checkpoints", url, *options])
    assert [each["url"] for each in json.loads(listed.stdout)["checkpoints"]] == [url]

    (tmp_path / "fork").mkdir()
    fork = Miniature(opened((tmp_path / "elsewhere").as_uri()), tmp_path / "fork", DictStore, open_store=opened)
    assert fork.start(2, origin=url) == 1
    target.delete([info.key for info in target.list("")])  # it was copied from one storage to another
    fork.begin(2)
    assert fork.start(1) == 1
    assert fork.contents() == expected
    nothing = CliRunner().invoke(main.app, ["checkpoints", f"{root}/nothing", *options])
    assert nothing.exit_code == 2
    assert "holds no checkpoints" in nothing.stderr


@pytest.mark.parametrize(
    ("first", "second", "root"),
    [
        ("s3://b/x/jobs/j", "s3://b/x/save", "s3://b/x"),
        ("s3://b/jobs/j", "s3://b/save", "s3://b"),
        ("s3://b/j", "s3://c/j", None),
        ("s3://b/j", "file:///b/j", None),
        ("file:///data/jobs/j", "file:///data/save", "file:///data"),
        ("file:///data/j", "file:///save", None),
        ("s3://b/job-1/x", "s3://b/job-10/x", "s3://b"),
    ],
)
def test_common_root(first: str, second: str, root: str | None) -> None:
    """Whole folder names count, and never less than a bucket."""
    assert common_root(first, second) == root
