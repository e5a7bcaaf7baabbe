"""Where Spark's checkpoint location lies, and that those of earlier attempts do not pile up."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.checkpoint_location import open_location


def test_on_the_drivers_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new folder each time, not made yet: what is there would be taken for Spark's."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second = open_location(None, "job", 1), open_location(None, "job", 1)
    assert first != second
    assert first.parent.parent == tmp_path
    assert not first.exists()


def test_on_a_shared_disk(tmp_path: Path) -> None:
    """Each attempt has a folder of its own; those before it are removed, other jobs' are not."""
    url = f"file://{tmp_path}/with%20space"
    other = open_location(url, "other", 7)
    first = open_location(url, "job", 1)
    first.mkdir()
    (first / "metadata").write_text("{}")
    second = open_location(url, "job", 2)
    assert second.parent.parent == tmp_path / "with space" / "job"
    assert second.parent.is_dir()
    assert not second.exists()
    assert not first.parent.exists()
    assert other.parent.is_dir()


def test_a_shared_disk_that_is_not_there(tmp_path: Path) -> None:
    """The text names the field."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"^spec\.checkpointing\.sparkLocation: .*file/job cannot be written"):
        open_location(f"file://{tmp_path}/file", "job", 1)
