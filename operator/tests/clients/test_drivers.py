"""Requests to drivers over real connections: what is sent, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from statefulspark.errors import ConflictError, InvalidInputError, UnavailableError
from statefulspark_operator.builders.certificates import Signed, new_authority, new_certificate
from statefulspark_operator.clients import breaker as breaker_module
from statefulspark_operator.clients import drivers as drivers_module
from statefulspark_operator.clients.drivers import Drivers

TOKEN = "t" * 16
CHECKPOINT = {
    "id": 3, "kind": "checkpoint", "path": "s3://b/chk-3", "batch": 9, "completed_ms": 1000, "duration_ms": 5, "sync_ms": 1, "size_bytes": 8,
    "uploaded_bytes": 4,
}  # fmt: skip
STATUS = {
    "state": "RUNNING", "attempt": 2, "batch": 9, "parallelism": 1, "max_parallelism": 128, "last_checkpoint": CHECKPOINT, "last_savepoint": None,
    "slots": [{"slot": 0, "first": 0, "last": 127, "state": "RUNNING", "executor": "1", "host": "exec-1", "memory": None}],
}  # fmt: skip


def with_server(
    answers: dict[str, tuple[int, bytes]], use: Callable[[Drivers, str, list[str]], Awaitable[None]], *, tls: ssl.SSLContext | None = None
) -> None:
    """Serve answers by method and path; ``use`` gets the client, the URL and the heads of the requests as they come."""

    async def run() -> None:
        heads: list[str] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            heads.append(head)
            method, target = head.split(" ", 2)[:2]
            code, body = answers[f"{method} {target.split('?')[0]}"]
            writer.write(b"HTTP/1.1 %d x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (code, len(body)) + body)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        drivers = Drivers()
        try:
            await use(drivers, f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads)
        finally:
            await drivers.close()
            server.close()

    asyncio.run(run())


def said(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_a_look_asks_for_what_is_wanted_and_no_more() -> None:
    """With the token; savepoints are no checkpoints that are kept."""
    answers = {
        "GET /v1/status": (200, said(STATUS)),
        "GET /v1/operations": (200, said({"operations": [{"id": "1", "key": "k", "state": "SUCCEEDED", "checkpoint": CHECKPOINT}]})),
        "GET /v1/checkpoints": (200, said({"checkpoints": [CHECKPOINT, CHECKPOINT | {"id": 4, "kind": "savepoint"}]})),
    }

    async def use(drivers: Drivers, url: str, heads: list[str]) -> None:
        driver = await drivers.fetch(url, TOKEN, operations=False)
        assert (driver.batch, driver.slots[0].host, driver.retained, driver.operations) == (9, "exec-1", None, {})
        assert len(heads) == 1
        assert f"authorization: bearer {TOKEN}" in heads[0].lower()
        driver = await drivers.fetch(url, TOKEN, operations=True, checkpoints=True)
        assert driver.retained is not None
        assert [(info.id, info.path) for info in driver.retained] == [(3, "s3://b/chk-3")]
        assert driver.operations["k"].state == "SUCCEEDED"

    with_server(answers, use)


def test_what_is_asked_for_carries_its_key() -> None:
    async def use(drivers: Drivers, url: str, heads: list[str]) -> None:
        await drivers.ask(url, TOKEN, "rescale", "rescale-7-0", {"parallelism": 2}, timeout_s=600)
        assert "POST /v1/rescale?wait=false&timeout_s=600 " in heads[0]
        assert "idempotency-key: rescale-7-0" in heads[0].lower()

    with_server({"POST /v1/rescale": (202, said({}))}, use)


@pytest.mark.parametrize(
    ("code", "body", "error"),
    [
        (409, said({"error": {"reason": "Conflict", "message": "busy"}}), ConflictError),
        (401, said({"error": {"reason": "Unauthorized", "message": "no"}}), InvalidInputError),
        (503, said({"error": {"reason": "Unavailable", "message": "later"}}), UnavailableError),
        (500, b"<html>", UnavailableError),
        (200, b"<html>a proxy", UnavailableError),
        (302, b"", UnavailableError),
        (500, said(["no", "error"]), UnavailableError),
        (200, said([1, 2, 3]), UnavailableError),
        (200, said(STATUS | {"batch": "many"}), UnavailableError),
        (200, said(STATUS | {"state": ["RUNNING"]}), UnavailableError),
        (200, said(STATUS | {"state": "CONQUERED"}), UnavailableError),
        (200, said(STATUS | {"slots": {"a": 1}}), UnavailableError),
        (200, said(STATUS | {"last_checkpoint": CHECKPOINT | {"completed_ms": 1 << 80}}), UnavailableError),
        (200, said(STATUS | {"restored_from": "s" * 100_000}), UnavailableError),
        (200, b"[" * 1000 + b"]" * 1000, UnavailableError),
        (200, b'{"state":' * 1000 + b"1" + b"}" * 1000, UnavailableError),
        (200, b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", UnavailableError),
        (400, b"[" * 1000 + b"]" * 1000, InvalidInputError),
    ],
)
def test_each_refusal_is_an_error_of_ours(code: int, body: bytes, error: type[Exception]) -> None:
    async def use(drivers: Drivers, url: str, heads: list[str]) -> None:
        with pytest.raises(error):
            await drivers.fetch(url, TOKEN, operations=False)

    with_server({"GET /v1/status": (code, body)}, use)


def test_a_driver_that_is_not_there_does_not_answer() -> None:
    async def run() -> None:
        drivers = Drivers()
        with pytest.raises(UnavailableError):
            await drivers.fetch("http://127.0.0.1:9", TOKEN, operations=False)
        await drivers.close()

    asyncio.run(run())


async def connections(drivers: Drivers, *, kept: bool) -> int:
    """Polls a driver three times and returns how many connections that took. All are closed soon afterwards, or none if they are ``kept``."""
    opened, closed = 0, asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while b"connection: close" not in (await reader.readuntil(b"\r\n\r\n")).lower():
                writer.write(b"HTTP/1.1 200 x\r\ncontent-length: %d\r\n\r\n" % len(said(STATUS)) + said(STATUS))
            writer.write(b"HTTP/1.1 200 x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(said(STATUS)) + said(STATUS))
        writer.close()
        closed.release()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    for _ in range(3):
        await drivers.fetch(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", TOKEN, operations=False)
    if kept:
        await asyncio.sleep(0.3)
        assert closed.locked()
    else:
        async with asyncio.timeout(20):
            for _ in range(opened):
                await closed.acquire()
    await drivers.close()
    server.close()
    return opened


@pytest.mark.parametrize(("interval_s", "kept"), [(30.0, True), (0.0, False), (3600.0, False)])
def test_a_connection_is_kept_from_one_poll_to_the_next(monkeypatch: pytest.MonkeyPatch, interval_s: float, kept: bool) -> None:
    """A handshake takes more CPU time than a poll. But a connection that the driver would close before is closed by the operator, and soon."""
    monkeypatch.setattr(drivers_module, "_IDLE_MIN_S", 0.05)
    opened = asyncio.run(connections(Drivers(poll_interval_s=interval_s), kept=kept))
    assert opened == 1 or not kept


def test_no_more_connections_are_kept_than_memory_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers_module, "_KEPT_MAX", 0)
    assert asyncio.run(connections(Drivers(poll_interval_s=30), kept=False)) == 3


def test_connections_that_are_no_longer_used_make_room() -> None:
    drivers = Drivers(poll_interval_s=0.02)
    drivers._idle_s = 0.0
    for number in range(drivers_module._KEPT_MAX + 10):
        assert drivers._keeps(f"https://10.0.0.{number}"), "the earlier ones are closed"


# -- attacks: a driver runs a tenant's code ------------------------------------------------------------------------------


def attacked(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], use: Callable[[Drivers, str], Awaitable[None]]
) -> None:
    """Let ``use`` call an endpoint that behaves as ``serve`` does; what is still served when the client has gone is ended."""

    async def run() -> None:
        serving: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async def answer() -> None:
                try:
                    with contextlib.suppress(ConnectionError):
                        await reader.readuntil(b"\r\n\r\n")
                        await serve(reader, writer)
                finally:
                    writer.transport.abort()

            serving.add(asyncio.create_task(answer()))

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        drivers = Drivers()
        try:
            await use(drivers, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        finally:
            await drivers.close()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            server.close()

    asyncio.run(run())


def endless(head: bytes, part: bytes, sent: list[int]) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """An answer that goes on for 300 MiB, or until the client closes."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _number in range((300 << 20) // len(part)):
            writer.write(part)
            await writer.drain()
            sent[0] += len(part)

    return serve


CHUNK = b"10000\r\n" + b" " * 0x10000 + b"\r\n"


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"HTTP/1.1 200 x\r\ncontent-length: 314572800\r\n\r\n", b" " * 0x10000),
        (b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n", CHUNK),
        (b"HTTP/1.1 500 x\r\ntransfer-encoding: chunked\r\n\r\n", CHUNK),
        (b"HTTP/1.1 200 x\r\n", b"x-filler: " + b"y" * 4000 + b"\r\n"),
    ],
    ids=["length", "chunks", "error", "headers"],
)
def test_an_answer_of_300_mib_is_not_read(head: bytes, part: bytes) -> None:
    """The client hangs up after its bound; what the kernel buffers on the way is all that is sent beyond it."""
    sent = [0]

    async def use(drivers: Drivers, url: str) -> None:
        with pytest.raises(UnavailableError):
            await drivers.fetch(url, TOKEN, operations=False)

    attacked(endless(head, part, sent), use)
    assert sent[0] < 32 << 20


def test_a_compressed_answer_is_not_unpacked() -> None:
    """4 KiB of gzip are 4 MiB of zeros, and so on."""
    body = gzip.compress(said(STATUS))

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 x\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    async def use(drivers: Drivers, url: str) -> None:
        with pytest.raises(UnavailableError):
            await drivers.fetch(url, TOKEN, operations=False)

    attacked(serve, use)


def test_an_endpoint_that_drips_bytes_is_given_up_and_then_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time and the whole never does: the deadline is for the whole, and the third look costs no time."""
    monkeypatch.setattr(drivers_module, "_REQUEST_S", 0.2)
    monkeypatch.setattr(breaker_module, "_SLOW_S", 0.1)
    asked = [0]

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked[0] += 1
        writer.write(b"HTTP/1.1 200 x\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def use(drivers: Drivers, url: str) -> None:
        for _attempt in range(5):
            with pytest.raises(UnavailableError):
                await drivers.fetch(url, TOKEN, operations=False)

    attacked(drip, use)
    assert asked[0] == 2


def certified(folder: Path, authority: Signed) -> ssl.SSLContext:
    """A driver with a certificate of that authority."""
    signed = new_certificate(authority, service="counts-driver", namespace="shop", now=datetime.now(UTC))
    (folder / "chain.pem").write_bytes(signed.certificate + signed.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "chain.pem")
    return context


def test_the_token_goes_to_the_jobs_own_driver_only(tmp_path: Path) -> None:
    """Its certificate is signed by the job's authority and has the job's fixed name, whatever the pod's address is."""
    ours, other = new_authority("counts", b"a" * 64, datetime.now(UTC)), new_authority("other", b"b" * 64, datetime.now(UTC))

    async def use(drivers: Drivers, url: str, heads: list[str]) -> None:
        for authority in (other.certificate.decode(), "no certificate"):
            with pytest.raises(InvalidInputError):
                await drivers.fetch(url, TOKEN, operations=False, authority=authority)
        with pytest.raises(UnavailableError):
            await drivers.fetch(url.replace("https", "http"), TOKEN, operations=False)
        assert not heads, "the token was sent"
        for _ in range(2):
            assert (await drivers.fetch(url, TOKEN, operations=False, authority=ours.certificate.decode())).state == "RUNNING"
        await drivers.ask(url, TOKEN, "cancel", "key", None, timeout_s=5, authority=ours.certificate.decode())
        assert len(heads) == 3

    answers = {"GET /v1/status": (200, said(STATUS)), "POST /v1/cancel": (202, b"{}")}
    with_server(answers, use, tls=certified(tmp_path, ours))
