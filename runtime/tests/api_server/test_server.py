"""uvicorn beside the job: binding, the URL it tells, and an end that lets answers out."""

from __future__ import annotations

import logging
import socket
import threading

import httpx
import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob

from statefulspark.api_server.api import create_app
from statefulspark.api_server.server import ApiServer, ServerSettings
from statefulspark.errors import InvalidInputError

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def serve(job: FakeJob, **settings: object) -> ApiServer:
    return ApiServer(create_app(job, token=TOKEN, clock_ms=lambda: 0), ServerSettings(**settings))  # type: ignore[arg-type]  # the tests name the fields


def test_a_port_in_use_is_said_so() -> None:
    """InvalidInputError naming the options, before any thread is started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(InvalidInputError, match=r"--api-host/--api-port.*cannot be bound"):
            serve(FakeJob(), port=other.getsockname()[1]).start()


def test_a_host_that_is_not_ours_is_said_so() -> None:
    """The same for an address of another machine."""
    with pytest.raises(InvalidInputError, match="cannot be bound"):
        serve(FakeJob(), host="192.0.2.1").start()


def test_bound_to_all_addresses_the_url_is_still_one_to_use() -> None:
    """0.0.0.0 is no address to connect to."""
    with serve(FakeJob(), host="0.0.0.0") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{server.url}/healthz", trust_env=False).status_code == 200


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """40 requests on one connection: with Nagle's algorithm on they would take 1.6 s at least, whatever the machine."""
    with serve(FakeJob()) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        durations_s = sorted(client.get("/healthz").elapsed.total_seconds() for _ in range(40))
    assert durations_s[10] < 0.03


def test_an_answer_under_way_gets_out_before_the_end() -> None:
    """Who asked for the stop that ends the driver still gets the path of the savepoint."""
    job = FakeJob()
    job.hold = threading.Event()
    answers: list[httpx.Response] = []
    with serve(job) as server:
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{server.url}/v1/stop", headers=HEADERS, timeout=20, trust_env=False)), daemon=True
        )
        asking.start()
        assert job.entered.wait(20)
        threading.Timer(0.2, job.hold.set).start()
    asking.join(20)
    assert answers[0].json()["checkpoint"]["path"].endswith("savepoint-1")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz", trust_env=False)


def test_the_token_is_in_no_log_record(caplog: pytest.LogCaptureFixture) -> None:
    """At the most talkative level, for good, wrong and failing requests."""
    caplog.set_level(logging.DEBUG)
    job = FakeJob()
    job.failures = {"checkpoints": RuntimeError("defect")}
    with serve(job) as server:
        for path in ("/v1/status", "/v1/checkpoints", "/nowhere"):
            httpx.get(server.url + path, headers=HEADERS, trust_env=False)
            httpx.get(server.url + path, headers={"Authorization": "Bearer wrong-token-wrong"}, trust_env=False)
        httpx.post(f"{server.url}/v1/savepoints", headers=HEADERS, trust_env=False)
    assert "defect" in caplog.text
    assert "savepoint requested" in caplog.text
    own = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert own
    for record in own:
        text = logging.Formatter().format(record)
        assert TOKEN not in text
        assert "wrong-token" not in text
