"""The client of the Kubernetes API over real HTTP: each answer becomes the result or the error it should, and every request is timed once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kubernetes.aio.client import Configuration

from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark_operator.clients import connection as connection_module
from statefulspark_operator.clients.connection import Connection
from statefulspark_operator.clients.kubernetes import Cluster

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
}
CALLS = {
    "get": lambda cluster: cluster.get("v1", "Pod", "shop", "p"),
    "apply": lambda cluster: cluster.apply(POD),
    "create": lambda cluster: cluster.create(POD),
    "update": lambda cluster: cluster.update(POD),
    "patch": lambda cluster: cluster.patch("v1", "Pod", "shop", "p", {"metadata": {}}),
    "delete": lambda cluster: cluster.delete("v1", "Pod", "shop", "p"),
}


def reply(code: int, body: str, content_type: str | None = "application/json") -> bytes:
    """An HTTP answer as bytes."""
    kind = f"content-type: {content_type}\r\n" if content_type else ""
    return f"HTTP/1.1 {code} Text\r\n{kind}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()


def refusal(code: int, reason: str) -> bytes:
    """A refusal in the words of Kubernetes."""
    return reply(code, json.dumps({"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": f"says {reason}"}))


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[Cluster, list[tuple[str, str]]]]:
    """A cluster whose server gives one answer to everything, and what was observed of the requests."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0]) if b"content-length: " in head else 0
        await reader.readexactly(length)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    cluster = Cluster(Connection(Configuration(host=url)))
    seen: list[tuple[str, str]] = []

    def observe(verb: str, code: str, took_s: float) -> None:
        assert took_s > 0
        seen.append((verb, code))

    cluster.observe(observe)
    try:
        yield cluster, seen
    finally:
        await cluster.close()
        server.close()
        await server.wait_closed()


async def outcome(verb: str, answer: bytes) -> tuple[Any, tuple[str, str]]:
    """What a call gives, and the one observation of its request."""
    async with answering(answer) as (cluster, seen):
        try:
            result: Any = await CALLS[verb](cluster)
        except StatefulSparkError as error:
            result = error
    (only,) = seen
    return result, only


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (409, "Conflict", ConflictError),
        (422, "Invalid", InvalidInputError),
        (403, "Forbidden", InvalidInputError),
        (429, "TooManyRequests", UnavailableError),
        (500, "InternalError", UnavailableError),
        (503, "ServiceUnavailable", UnavailableError),
    ],
)
def test_refusals_become_errors_that_say_what_to_do_next(verb: str, code: int, reason: str, expected: type[Exception]) -> None:
    """The class decides whether the operator tries again; the sentence of the API server and the object are in the text."""
    result, observed = asyncio.run(outcome(verb, refusal(code, reason)))
    assert type(result) is expected
    assert f"Pod shop/p: says {reason}" in str(result)
    assert observed == (verb, str(code))


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize(
    "answer",
    [reply(502, "<html>bad gateway</html>", None), reply(502, "<html/>", "text/html"), reply(200, "<html>log in</html>", "text/html"), b""],
    ids=["no content type", "html error", "html page", "hangs up"],
)
def test_what_stands_between_is_no_answer(verb: str, answer: bytes) -> None:
    """Proxies and dying servers answer in their own words or not at all: an error that is tried again, never another exception."""
    result, _ = asyncio.run(outcome(verb, answer))
    assert isinstance(result, UnavailableError)


@pytest.mark.parametrize(("verb", "expected"), [("get", None), ("patch", None), ("delete", None)])
def test_an_absent_object_is_a_result(verb: str, expected: object) -> None:
    """Reading, changing and deleting what is not there is no error."""
    assert asyncio.run(outcome(verb, refusal(404, "NotFound"))) == (expected, (verb, "404"))


def test_an_object_that_exists_is_a_result_of_its_creation() -> None:
    """Only AlreadyExists: another conflict is an error."""
    assert asyncio.run(outcome("create", refusal(409, "AlreadyExists"))) == (None, ("create", "409"))
    assert asyncio.run(outcome("create", reply(201, json.dumps(POD)))) == (POD, ("create", "2xx"))


def test_a_deletion_spares_an_object_that_has_taken_the_name() -> None:
    """With a uid the API server compares, and refuses for another object: what was to be deleted is gone."""

    async def delete(uid: str | None) -> None:
        async with answering(refusal(409, "Conflict")) as (cluster, _):
            await cluster.delete("v1", "Pod", "shop", "p", uid=uid)

    asyncio.run(delete("u"))
    with pytest.raises(ConflictError):
        asyncio.run(delete(None))


def test_the_served_version_of_disruption_budgets_is_found() -> None:
    """None when neither is there; a version that may not be listed is served all the same."""

    async def version(answer: bytes) -> str | None:
        async with answering(answer) as (cluster, _):
            return await cluster.disruption_budgets("default")

    assert asyncio.run(version(refusal(404, "NotFound"))) is None
    assert asyncio.run(version(refusal(403, "Forbidden"))) == "policy/v1"
    assert asyncio.run(version(reply(404, "404 page not found", "text/plain"))) is None


def test_connections_that_a_burst_has_opened_are_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a large read buffer, and requests that come one after another would keep all of them in use."""
    monkeypatch.setattr(connection_module, "_IDLE_S", 0.05)
    answer = f"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: {len(json.dumps(POD))}\r\n\r\n{json.dumps(POD)}"

    async def run() -> None:
        together, opened, closed = asyncio.Barrier(5), 0, asyncio.Semaphore(0)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal opened
            opened += 1
            await reader.readuntil(b"\r\n\r\n")
            await together.wait()
            writer.write(answer.encode())
            assert await reader.read() == b""
            writer.close()
            closed.release()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        cluster = Cluster(Connection(Configuration(host=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")))
        await asyncio.gather(*(cluster.get("v1", "Pod", "shop", "p") for _ in range(5)))
        assert opened == 5
        async with asyncio.timeout(5):
            for _ in range(5):
                await closed.acquire()
        await cluster.close()
        server.close()

    asyncio.run(run())
