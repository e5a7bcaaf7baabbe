"""``statefulspark history``: the whole answer as JSON, and tables that fit a terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob
from runtime.tests.api_server.page_data import eventful
from typer.testing import CliRunner, Result

from statefulspark.api_server.run.connection_files import Connection, ConnectionFile
from statefulspark.cli.main import build_app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, url: str, job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("STATEFULSPARK_HOME", str(tmp_path))
    eventful(job, now_ms=int(time.time() * 1000))
    with ConnectionFile(tmp_path, "turnaround") as claim:
        claim.write(Connection(url, TOKEN))
        yield tmp_path


def history(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["history", "--job", "turnaround", *arguments])


def test_json_is_all_that_the_driver_keeps(job: FakeJob) -> None:
    document = json.loads(history("-o", "json").stdout)
    assert len(document["samples"]) == len(job.past.samples)
    assert [event["message"] for event in document["events"]] == [event.message for event in job.past.events]
    recent = json.loads(history("-o", "json", "--since", "10m", "--samples", "5").stdout)
    assert 1 <= len(recent["samples"]) <= 5
    assert recent["events"] == []


def test_tables_fit_a_terminal_and_name_the_failures() -> None:
    result = history()
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "~" not in result.stdout.split("checkpoints and savepoints")[0]
    assert "…" not in result.stdout
    for part in (
        "samples",
        "checkpoints and savepoints",
        "failures and changes",
        "rescaled from 2 to 4 slots",
        "Unavailable: checkpoint 84",
    ):
        assert part in result.stdout, part


def test_a_wrong_duration_is_refused_with_the_option() -> None:
    result = history("--since", "yesterday")
    assert result.exit_code == 2
    assert "--since: not a duration" in result.stderr
