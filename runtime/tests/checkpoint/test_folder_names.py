"""Folders whose names need percent-encoding in a URL: checkpoints and savepoints in them are found, listed, copied and restored."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature

from statefulspark.checkpoint.catalog import checkpoint_before, list_checkpoints, open_checkpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.stored_jobs import list_jobs
from statefulspark.state.store.base import Change
from statefulspark.storage.open import open_store

NAMES = ["my flights", "50%", "#1?", "a%20b", "été"]
CHANGES: list[Change] = [(bytes([0, key_group, 0, 1]), b"%d" % key_group) for key_group in range(8)]


def lived(folder: Path, local: Path) -> Miniature:
    """A job with two checkpoints."""
    local.mkdir(parents=True)
    mini = Miniature(open_store(folder.as_uri()), local, DictStore)
    mini.start(2)
    for batch in range(2):
        mini.begin(batch)
        mini.run(batch, CHANGES)
        mini.checkpoint(batch)
    return mini


@pytest.mark.parametrize("name", NAMES)
def test_a_savepoint_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """As a user renamed it, by its path and by its URL, which opens it again."""
    mini = lived(tmp_path / "flights", tmp_path / "local")
    mini.savepoint(open_store((tmp_path / "savepoints").as_uri()), "savepoint-flights-000000000001", 1)
    shutil.move(tmp_path / "savepoints" / "savepoint-flights-000000000001", tmp_path / "savepoints" / name)
    for url in (str(tmp_path / "savepoints" / name), (tmp_path / "savepoints" / name).as_uri()):
        found = open_checkpoint(url, open_store)
        assert found.folder == name
        assert open_checkpoint(found.url, open_store) == found
        assert [each.url for each in list_checkpoints(url, open_store)] == [found.url]
    copy = Miniature(open_store((tmp_path / "other").as_uri()), tmp_path / "local", DictStore, started=100)
    assert copy.start(3, origin=(tmp_path / "savepoints" / name).as_uri()) == 1
    assert copy.contents() == dict(CHANGES)


@pytest.mark.parametrize("name", NAMES)
def test_a_job_in_folders_of_any_name(tmp_path: Path, name: str) -> None:
    """Its jobs and checkpoints are listed, another job starts from one, and a savepoint copies files within the storage."""
    mini = lived(tmp_path / name / name, tmp_path / "local")
    root = str(tmp_path / name)
    (job,) = list_jobs(root, open_store)
    assert (job.job_id, job.problem) == (name, None)
    urls = [each.url for each in list_checkpoints(root, open_store)]
    assert [open_checkpoint(url, open_store).metadata.batch for url in urls] == [0, 1]
    assert checkpoint_before(urls[1], open_store) == urls[0]
    assert open_checkpoint(job.url, open_store).url == urls[1]
    copy = Miniature(open_store((tmp_path / "other" / name).as_uri()), tmp_path / "local", DictStore, started=100)
    assert copy.start(3, origin=urls[1]) == 1
    assert copy.contents() == dict(CHANGES)
    savepoints = open_store((tmp_path / name / "savepoints").as_uri())
    common = paths.common_root(mini.job.url, savepoints.url)
    assert common is not None
    url = mini.savepoint(savepoints, "savepoint-flights-000000000001", 1, common=open_store(common))
    copy = Miniature(open_store((tmp_path / "third").as_uri()), tmp_path / "local", DictStore, started=200)
    assert copy.start(1, origin=url) == 1
    assert copy.contents() == dict(CHANGES)
