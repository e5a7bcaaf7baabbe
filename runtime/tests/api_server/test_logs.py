"""``GET /v1/logs`` and ``statefulspark logs`` on a live server."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob
from runtime.tests.api_server.page_data import record
from typer.testing import CliRunner, Result

from statefulspark.api_server.api import create_app
from statefulspark.api_server.run.connection_files import Connection, ConnectionFile
from statefulspark.api_server.server import ApiServer, ServerSettings
from statefulspark.cli.main import build_app
from statefulspark.logs.tail import LogTail


@pytest.fixture
def server(tail: LogTail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.setenv("STATEFULSPARK_HOME", str(tmp_path))
    app = create_app(FakeJob(), token=TOKEN, clock_ms=lambda: 0, tail=tail)
    with ApiServer(app, ServerSettings()) as server, ConnectionFile(tmp_path, "turnaround") as claim:
        claim.write(Connection(server.url, TOKEN))
        yield server


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["logs", "--job", "turnaround", *arguments])


def test_the_route_needs_the_token_and_bounds_what_it_takes(server: ApiServer, tail: LogTail) -> None:
    record(tail, logging.WARNING, "late", slot=1, uid="u", key_group=7)
    assert httpx.get(f"{server.url}/v1/logs", trust_env=False).status_code == 401
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as http:
        assert http.get("/v1/logs").json() == {
            "records": [
                {
                    "number": 1, "timestamp": "2026-09-21T14:13:20.250000Z", "level": "warning", "logger": "flights", "event": "late",
                    "facts": {"slot": 1, "uid": "u", "key_group": 7},
                }
            ],
            "last": 1,
            "elsewhere": None,
        }  # fmt: skip
        tail.elsewhere = "in the executors' pods"
        assert http.get("/v1/logs", params={"level": "error"}).json() == {"records": [], "last": 1, "elsewhere": "in the executors' pods"}
        for wrong in ({"records": 0}, {"records": 5_001}, {"after": -1}, {"level": "loud"}, {"slot": -1}, {"uid": "u" * 1_025}):
            assert http.get("/v1/logs", params=wrong).status_code == 422, wrong


def test_lines_for_people(server: ApiServer, tail: LogTail) -> None:
    """What a function logs cannot control the terminal; a traceback has lines of its own."""
    record(tail, logging.INFO, "old")
    record(tail, logging.INFO, "\x1b[2Jcleared\r", slot=1, uid="u", key_group=7, item="\x07")
    record(tail, logging.ERROR, "failed", exception="Traceback\n  line")
    assert cli("-n", "2").stdout == (
        "14:13:20Z INFO    [slot 1, key group 7, uid u] \\x1b[2Jcleared\\r item=\\x07\n14:13:20Z ERROR   failed\nTraceback\n  line\n"
    )
    assert cli("--level", "error").stdout.startswith("14:13:20Z ERROR   failed\n")
    assert cli("--slot", "0").stdout == ""
    assert cli("--slot", "0").stderr == ""
    tail.elsewhere = "in the executors' pods"
    assert (cli("--slot", "0").stdout, cli("--slot", "0").stderr) == ("", "in the executors' pods\n")
    assert "cleared" in cli("--uid", "u", "--slot", "1").stdout


def test_json_is_one_record_per_line(server: ApiServer, tail: LogTail) -> None:
    record(tail, logging.INFO, "one\ntwo", slot=0)
    record(tail, logging.INFO, "three")
    lines = [json.loads(line) for line in cli("-o", "json").stdout.splitlines()]
    assert [(line["number"], line["event"], line["facts"]) for line in lines] == [(1, "one\ntwo", {"slot": 0}), (2, "three", {})]


def test_following_ends_with_the_driver(server: ApiServer, tail: LogTail, monkeypatch: pytest.MonkeyPatch) -> None:
    """New records are shown once each."""
    steps = iter([lambda: record(tail, logging.INFO, "second"), lambda: None, server.stop])
    record(tail, logging.INFO, "first")
    monkeypatch.setattr("statefulspark.cli.driver.logs.time", SimpleNamespace(sleep=lambda _: next(steps)()))
    result = cli("--follow")
    assert result.exit_code == 0, result.output
    assert [line.split()[-1] for line in result.stdout.splitlines()] == ["first", "second"]
    assert result.stderr == "the driver no longer answers\n"
