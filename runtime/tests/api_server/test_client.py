"""The client against a live server: answers become models, refusals become the errors of this package."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from runtime.tests.api_server.fake_job import FakeJob

from statefulspark.api_server.client import JobClient
from statefulspark.api_server.models.job import MemoryRequest
from statefulspark.coordinator.controls import MemoryChange
from statefulspark.errors import (
    ClosedError,
    ConflictError,
    CorruptDataError,
    FencedError,
    IncompatibleFormatError,
    InternalError,
    InvalidInputError,
    NotRestorableError,
    StatefulSparkError,
    UnavailableError,
    UserFunctionError,
)


@pytest.fixture
def client(url: str, token: str) -> Iterator[JobClient]:
    with JobClient(url, token) as made:
        yield made


def test_every_command_reaches_the_job(client: JobClient, job: FakeJob) -> None:
    """With its arguments, and the answers come back typed."""
    assert client.checkpoint(timeout_s=5).kind == "checkpoint"
    assert client.savepoint(target="s3://b/sp", timeout_s=6).path == "s3://b/sp/savepoint-2"
    assert client.rescale_plan(3).moved_key_groups == 63
    assert client.rescale(3, timeout_s=7).parallelism == 3
    assert [info.id for info in client.checkpoints()] == [1, 2]
    assert client.status().slots[2].last == 127
    assert client.memory().revision == 0
    assert client.tune_memory(MemoryRequest(managed_bytes=64 << 20), timeout_s=3).managed_bytes == 64 << 20
    stopped = client.stop(savepoint=False, target=None, drain=False, timeout_s=8)
    assert (stopped.state, stopped.checkpoint.id if stopped.checkpoint else None) == ("SUSPENDED", 3)
    assert client.cancel(timeout_s=9).state == "CANCELED"
    assert job.calls == [
        ("trigger_checkpoint", 5.0), ("trigger_savepoint", "s3://b/sp", 6.0), ("rescale", 3, 7.0),
        ("tune_memory", MemoryChange(managed_bytes=64 << 20), 3.0), ("stop", False, None, False, 8.0), ("cancel",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        (InvalidInputError("x", field="target"), InvalidInputError),
        (NotRestorableError("x"), NotRestorableError),
        (ConflictError("x"), ConflictError),
        (FencedError("x"), FencedError),
        (ClosedError("x"), ClosedError),
        (UnavailableError("x", retry_after_s=3.5), UnavailableError),
        (CorruptDataError("x", path="chk-1/f"), StatefulSparkError),
        (IncompatibleFormatError("x", path="chk-1/f"), StatefulSparkError),
        (UserFunctionError("x", uid="u", key_group=3, user_traceback="ValueError: y"), StatefulSparkError),
        (InternalError("x"), StatefulSparkError),
        (RuntimeError("x"), StatefulSparkError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_refusals_come_back_as_errors(client: JobClient, job: FakeJob, raised: Exception, caught: type[StatefulSparkError]) -> None:
    """The class says what the caller does next; the text is the driver's."""
    job.failures = {"trigger_savepoint": raised}
    with pytest.raises(caught) as found:
        client.savepoint(target=None, timeout_s=5)
    assert type(found.value) is caught
    if isinstance(raised, StatefulSparkError):
        assert str(raised) in str(found.value)
    if isinstance(found.value, UnavailableError):
        assert found.value.retry_after_s == 4.0


def test_a_wrong_token_is_said_so(url: str) -> None:
    """With the ways to give the right one, and without the wrong one."""
    with JobClient(url, "wrong-token-0123456789") as client, pytest.raises(InvalidInputError, match="rejected the token") as caught:
        client.status()
    assert "--token-file" in str(caught.value)
    assert "wrong-token" not in str(caught.value)


def test_nobody_there() -> None:
    """A closed port is a sentence with the URL, not a stack of httpx."""
    with (
        JobClient("http://127.0.0.1:9", "token-0123456789abcdef") as client,
        pytest.raises(UnavailableError, match=r"no response from http://127\.0\.0\.1:9"),
    ):
        client.status()


@pytest.mark.parametrize("url", ["ftp://host", "http://", "host:80", "http://host:port", ""])
def test_what_is_not_a_url_is_refused(url: str) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidInputError, match="--job"):
        JobClient(url, "token-0123456789abcdef")


def test_another_server_is_recognised_and_redirects_do_not_carry_the_token_away() -> None:
    """Some other web server on that port: named as such; its redirect is not followed."""
    asked: list[str] = []

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302 if len(asked) == 1 else 200)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"hi")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with JobClient(f"http://127.0.0.1:{server.server_port}", "token-0123456789abcdef") as client:
            for _ in range(2):
                with pytest.raises(InvalidInputError, match="is not a statefulspark driver"):
                    client.status()
        server.shutdown()
    assert asked == ["/v1/status", "/v1/status"]


def test_a_proxy_in_the_environment_is_not_asked_about_this_machine(url: str, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could neither reach the job nor should it see the token."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with JobClient(url, token) as client:
        assert client.status().name == "turnaround"
