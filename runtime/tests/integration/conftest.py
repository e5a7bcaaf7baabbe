"""One folder and at most one running job per test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from statefulspark.cli.main import app
from statefulspark.logs.levels import present_levels, set_levels

from .work import Command, Work, wait_until

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here starts Spark."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Everything a job of the test writes is below the test's folder. When the test ends, nothing runs, and no driver's temporary folder is left."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    work = Work(folder=tmp_path, monkeypatch=monkeypatch)
    yield work
    work.close()
    # Those of drivers in processes of their own, which tests kill, stay.
    locations = [Path(job._settings.local_checkpoint) for job in work.jobs]
    left = [each.parent for each in locations if scratch in each.parents]
    wait_until(lambda: not any(each.exists() for each in left), 120, "the folders of drivers are removed")


@pytest.fixture
def command(work: Work, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Run a ``statefulspark`` command in this process, and take back what it changes of logging."""
    monkeypatch.setenv("STATEFULSPARK_HOME", str(work.folder / "home"))
    handlers, levels = logging.getLogger().handlers, present_levels()
    yield lambda *arguments: CliRunner().invoke(app, [str(each) for each in arguments])
    work.close()
    logging.getLogger().handlers = handlers
    set_levels(levels)
    structlog.reset_defaults()
