"""Commands about a running job find it by name, by manifest, as an argument or as an option, and by itself where only one runs."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from statefulspark.api_server.run.connection_files import Connection, ConnectionFile
from statefulspark.cli.main import app

SESSIONS = Path(__file__).parents[3] / "examples/02-sessions/job.yaml"
TOKEN = "a-token-of-twenty-eight-signs"
Start = Callable[[str], "Driver"]


class Driver(http.server.ThreadingHTTPServer):
    """A driver that refuses every token and counts its requests."""

    requests = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Refusing)
        self.url = f"http://127.0.0.1:{self.server_port}"


class Refusing(http.server.BaseHTTPRequestHandler):
    server: Driver

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_request(self, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a job of that name on this machine; it runs until the test ends."""
    monkeypatch.setenv("STATEFULSPARK_HOME", str(tmp_path))
    with ExitStack() as stack:

        def started(name: str) -> Driver:
            driver = stack.enter_context(Driver())
            threading.Thread(target=driver.serve_forever, daemon=True).start()
            stack.callback(driver.shutdown)
            stack.enter_context(ConnectionFile(tmp_path, name)).write(Connection(driver.url, TOKEN))
            return driver

        yield started


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


@pytest.mark.parametrize(
    "command", [["status"], ["savepoint"], ["rescale", "3"], ["stop"], ["cancel"], ["history"], ["logs"], ["ui", "--print"]], ids=" ".join
)
def test_the_only_job_is_the_default(start: Start, command: list[str]) -> None:
    payments = start("payments")
    result = run(*command)
    assert result.exit_code != 0
    assert payments.requests > 0, result.output


def test_one_of_several_jobs_must_be_named(start: Start, tmp_path: Path) -> None:
    payments, clicks = start("payments"), start("clicks")
    result = run("status")
    assert result.exit_code == 2
    assert "--job: 2 jobs run on this machine (clicks, payments). Name the job" in result.stderr
    token = tmp_path / "token"
    token.write_text(TOKEN)
    for named in (["clicks"], ["--job", "clicks"], [clicks.url, "--token-file", str(token)], [clicks.url], [f"{clicks.url}/"]):
        before = clicks.requests
        run("status", *named)
        assert clicks.requests > before
    assert payments.requests == 0


def test_no_job_runs(start: Start) -> None:
    result = run("status")
    assert result.exit_code == 2
    assert "--job: no job runs on this machine" in result.stderr


def test_a_manifest_names_its_job(start: Start, tmp_path: Path) -> None:
    sessions, clicks = start("sessions"), start("clicks")
    run("status", str(SESSIONS))
    assert (sessions.requests > 0, clicks.requests) == (True, 0)
    result = run("status", str(tmp_path / "missing.yaml"))
    assert (result.exit_code, "missing.yaml" in result.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [["one", "two"], ["one", "--job", "two"]], ids=" ".join)
def test_two_jobs_are_too_many(start: Start, arguments: list[str]) -> None:
    result = run("status", *arguments)
    assert result.exit_code == 2
    assert "one job at a time" in result.stderr
