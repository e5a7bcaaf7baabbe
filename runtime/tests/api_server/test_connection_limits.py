"""Nobody without the token keeps callers with it, or the health probes, from the API; and no body fills the driver."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob

from statefulspark.api_server.api import create_app
from statefulspark.api_server.bodies import BODY_BYTES_MAX
from statefulspark.api_server.server import ApiServer, ServerSettings
from statefulspark.config.kubernetes.pods import API_KEEP_ALIVE_S

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
HEAD = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n"
BODY = b"POST /v1/savepoints HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"
PROBE = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"


@pytest.fixture
def crowd() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(**settings: object) -> ApiServer:
    return ApiServer(create_app(FakeJob(), token=TOKEN, clock_ms=lambda: 0), ServerSettings(**settings))  # type: ignore[arg-type]  # the tests name the fields


def connect(crowd: ExitStack, server: ApiServer, first: bytes = b"") -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = crowd.enter_context(socket.create_connection((host, int(port)), timeout=20))
    connection.sendall(first)
    return connection


def over(connection: socket.socket) -> bool:
    """Whether the server has ended the connection, now or within the socket's timeout."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("first", [b"", HEAD, BODY, PROBE], ids=["silent", "head", "body", "probe"])
def test_three_hundred_strangers_lock_nobody_out(crowd: ExitStack, first: bytes) -> None:
    """Silent, with half a head, or with a body that does not end: the status and the probes answer, also on a connection from before."""
    with serve() as server, httpx.Client(base_url=server.url, headers=HEADERS, trust_env=False, timeout=5) as before:
        assert before.get("/v1/status").status_code == 200
        for _ in range(300):
            connect(crowd, server, first)
        assert before.get("/v1/status").status_code == 200
        for _ in range(3):
            assert httpx.get(f"{server.url}/v1/status", headers=HEADERS, trust_env=False, timeout=5).status_code == 200
            assert httpx.get(f"{server.url}/healthz", trust_env=False, timeout=5).status_code == 200


@pytest.mark.parametrize("first", [b"", HEAD, BODY, PROBE], ids=["silent", "head", "body", "probe"])
def test_a_stranger_has_little_time(crowd: ExitStack, first: bytes) -> None:
    """However it spends it: every byte that it drips does not begin the time anew."""
    with serve(unauthenticated_timeout_s=0.3) as server:
        connection = connect(crowd, server, first)
        try:
            for _ in range(200):
                connection.settimeout(0.02)
                try:
                    if not connection.recv(4096):
                        break
                except TimeoutError:
                    connection.sendall(b"x")
            else:
                pytest.fail("4 s of dripping, and the connection is still there")
        except (ConnectionResetError, BrokenPipeError):
            pass


def status_of(connection: socket.socket) -> int:
    """Read one answer to its end: its head and its body are separate writes."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def test_who_shows_the_token_keeps_the_connection(crowd: ExitStack) -> None:
    """Past the time of strangers, and when strangers take all places."""
    with serve(unauthenticated_timeout_s=0.2, unauthenticated_max=2) as server:
        connection = connect(crowd, server, HEAD + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert status_of(connection) == 200
        stranger = connect(crowd, server)
        for _ in range(5):
            connect(crowd, server)
        assert over(stranger)
        connection.sendall(HEAD + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert status_of(connection) == 200


def test_an_idle_connection_of_a_caller_with_the_token_outlasts_the_operators_poll() -> None:
    """The operator polls every 30 s and keeps its connection in between; a stranger's idle connection is closed much earlier, as above."""
    server = serve()
    assert server._config.timeout_keep_alive == API_KEEP_ALIVE_S
    assert API_KEEP_ALIVE_S > 2 * 30
    assert ServerSettings().unauthenticated_timeout_s < 30


def test_strangers_displace_those_of_the_address_that_has_most(crowd: ExitStack) -> None:
    """One address with hundreds of connections costs another its place only when it has more itself."""
    with serve(unauthenticated_max=8) as server:
        host, port = server.url.removeprefix("http://").split(":")
        other = crowd.enter_context(socket.create_connection((host, int(port)), timeout=20, source_address=("127.0.0.2", 0)))
        for _ in range(50):
            connect(crowd, server)
        other.sendall(HEAD + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert other.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_long_body_is_refused_before_it_is_read(crowd: ExitStack) -> None:
    """With the token too: 300 MiB are announced, and the answer comes after the first few of them."""
    head = f"POST /v1/savepoints HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {300 << 20}\r\n\r\n"
    with serve() as server:
        connection = connect(crowd, server, head.encode() + b" " * (BODY_BYTES_MAX + 1))
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")
        assert over(connection)
