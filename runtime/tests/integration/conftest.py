"""One folder and at most one running job per test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .work import Work

# The one Java of this process is short-lived: do not spend its cores on its own tuning.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Everything a job of the test writes is below the test's folder, and nothing runs when the test ends."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    work = Work(folder=tmp_path)
    yield work
    work.close()
