"""The webhook under attack over real connections: whoever reaches its port fills neither memory nor all places."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark_operator.handlers import serving
from statefulspark_operator.handlers.admission import review
from statefulspark_operator.handlers.request_bodies import BODY_MAX, RequestBodyReader
from statefulspark_operator.handlers.serving import serve, webhook_app
from statefulspark_operator.reconcile.tenancy import Tenancy
from tests.handlers.test_admission import job

HEAD = b"POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
MIB = 1 << 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def with_webhook(use: Callable[[int], Awaitable[None]]) -> None:
    """Serve the webhook, without TLS, and let ``use`` call its port."""

    async def run() -> None:
        port = free_port()
        server = asyncio.create_task(serve(webhook_app(Tenancy(), lambda namespace, name: None), port, name="webhook"))
        try:
            await asyncio.wait_for(reachable(port), 10)
            await use(port)
        finally:
            server.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await server

    asyncio.run(run())


async def reachable(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.transport.abort()
            return
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def status(reader: asyncio.StreamReader) -> int:
    return int((await reader.readuntil(b"\r\n")).split()[1])


async def ask(port: int, body: bytes) -> tuple[int, Any]:
    async with connected(port) as (reader, writer):
        writer.write(HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        code = await status(reader)
        return code, json.loads((await reader.read()).partition(b"\r\n\r\n")[2])


def review_of(document: Any) -> bytes:
    return json.dumps({"request": {"uid": "r-1", "operation": "CREATE", "object": document}}).encode()


def test_300_mib_in_chunks_are_not_read() -> None:
    """Refused after 4 MiB; what is on its way in buffers of the kernel is all that is sent beyond that."""

    async def use(port: int) -> None:
        sent = 0
        async with connected(port) as (reader, writer):
            writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                while sent < 300 * MIB:
                    writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                    await writer.drain()
                    sent += 0x10000
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                assert await status(reader) == 413
        assert sent < 32 * MIB
        assert (await ask(port, review_of(job())))[0] == 200

    with_webhook(use)


def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    async def use(port: int) -> None:
        async with connected(port) as (reader, writer):
            writer.write(HEAD + b"content-length: 314572800\r\n\r\n")
            assert await status(reader) == 413
            assert b"connection: close" in (await reader.read()).lower()

    with_webhook(use)


@pytest.mark.parametrize(
    "body",
    [b"[" * 1000 + b"]" * 1000, b'{"request":' * 100_000 + b"1" + b"}" * 100_000, b"[1]", b'{"request": "x"}', b'{"request": {"uid": 1}, "x": "\xff"}'],
    ids=["deep", "deeper", "list", "text", "no UTF-8"],
)  # fmt: skip
def test_what_is_no_review_is_refused_and_the_next_is_answered(body: bytes) -> None:
    async def use(port: int) -> None:
        assert (await ask(port, body))[0] == 400
        code, said = await ask(port, review_of(job(parallelism=500)))
        assert code == 200
        assert not said["response"]["allowed"]

    with_webhook(use)


@pytest.mark.parametrize("levels", [900, 2000, 9000])
def test_an_object_too_deep_to_be_read_is_denied(levels: int) -> None:
    """Where the webhook may fail (failurePolicy Ignore), any other answer would let it in. Etcd and the API server take 10000 levels."""
    body = b'{"kind": "AdmissionReview", "request": {"uid": "r-9", "operation": "CREATE", "object": {"kind": "StatefulSparkJob", "metadata": {}, "x": '
    body += b'{"a": ' * levels + b"1" + b"}" * levels + b"}}}"
    deep = review_of(job(driver={"podTemplate": {"spec": "DEEP"}})).replace(b'"DEEP"', b'{"a": ' * levels + b"1" + b"}" * levels)

    async def use(port: int) -> None:
        code, said = await ask(port, deep)
        assert (code, said["response"]["allowed"], said["response"]["uid"]) == (200, False, "r-1")
        code, said = await ask(port, body)
        assert (code, said["response"]["uid"]) == (200, "r-9")

    with_webhook(use)


def test_connections_that_say_nothing_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first request and at a later one; half a head is nothing."""
    monkeypatch.setattr(serving, "_HEAD_S", 0.1)
    review = review_of(job())

    async def use(port: int) -> None:
        async with connected(port) as (silent, _), connected(port) as (half, writer), connected(port) as (second, again):
            writer.write(HEAD)
            again.write(HEAD + b"content-length: %d\r\n\r\n" % len(review) + review)
            assert await status(second) == 200
            again.write(HEAD)
            for reader in (silent, half, second):
                await asyncio.wait_for(reader.read(), 4)

    with_webhook(use)


async def parts(number: int, size: int, *, stall: bool = False) -> AsyncIterator[bytes]:
    for _ in range(number):
        yield b" " * size
        await asyncio.sleep(0)
    if stall:
        await asyncio.Event().wait()


async def read(reader: RequestBodyReader, given: AsyncIterator[bytes]) -> bytes:
    async with reader.read(given) as body:
        return body


def test_large_bodies_that_stall_leave_room_for_usual_ones() -> None:
    """Hundreds that stay just below the bound: what all hold is bounded, and a review of the usual size is read meanwhile."""

    async def run() -> None:
        reader = RequestBodyReader()
        large = [asyncio.create_task(read(reader, parts(3, MIB, stall=True))) for _ in range(100)]
        for _ in range(10):
            await asyncio.sleep(0)
        refused = [task for task in large if task.done() and isinstance(task.exception(), UnavailableError)]
        assert len(refused) >= 70
        assert len(await read(reader, parts(4, 50_000))) == 200_000
        for task in large:
            task.cancel()
        await asyncio.gather(*large, return_exceptions=True)
        assert len(await read(reader, parts(3, MIB))) == 3 * MIB, "what they held is free again"
        with pytest.raises(InvalidInputError):
            await read(reader, parts(10, BODY_MAX))

    asyncio.run(run())


def test_a_body_counts_until_it_is_answered() -> None:
    """Bodies that wait for validation fill the memory just as those that are read."""

    async def run() -> None:
        reader = RequestBodyReader()
        async with contextlib.AsyncExitStack() as held:
            for _ in range(23):
                await held.enter_async_context(reader.read(parts(3, MIB)))
            with pytest.raises(UnavailableError):
                await read(reader, parts(4, MIB))
        assert len(await read(reader, parts(3, MIB))) == 3 * MIB

    asyncio.run(run())


def test_a_body_that_drips_is_given_up() -> None:
    async def run() -> None:
        with pytest.raises(UnavailableError):
            await read(RequestBodyReader(deadline_s=0.01), parts(3, 1, stall=True))

    asyncio.run(run())


def wide(entries: int) -> dict[str, Any]:
    document = job()
    document["spec"] |= {f"f{number}": 1 for number in range(entries)}
    return document


def many_wrong(entries: int) -> dict[str, Any]:
    """Each mapping is narrow, and nearly every value is a wrong field."""
    document = job()
    document["spec"]["executor"] = {f"g{group}": {f"f{number}": 1 for number in range(1000)} for group in range(entries // 1000)}
    document["spec"]["driver"] = {f"g{number}\x1b[2J": 1 for number in range(3000)}
    return document


def long_names() -> dict[str, Any]:
    document = job()
    document["spec"] |= {f"{number}" + "x" * 300_000: 1 for number in range(10)}
    return document


def bad_status() -> dict[str, Any]:
    return {**job(), "status": {"conditions": [1] * 300_000}}


@pytest.mark.parametrize(
    "document",
    [wide(300_000), wide(3_000), many_wrong(40_000), long_names(), {**job(), **{f"t{n}": 1 for n in range(300_000)}}],
    ids=["wide", "narrower", "nested", "long names", "top level"],
)
def test_an_object_with_many_wrong_fields_is_denied_in_bounded_time_and_memory(document: dict[str, Any]) -> None:
    """300,000 unknown fields took 13 s of the operator's event loop, 625 MiB and an answer of 129 MiB; this is work in Python per field, counted in bytes."""
    body = review_of(document)
    tracemalloc.start()
    try:
        said = review(json.loads(body))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    message = said["response"]["status"]["message"]
    assert not said["response"]["allowed"]
    assert len(message.encode()) <= 4096
    assert message.count("\n") <= 20
    assert message.isprintable() or "\x1b" not in message
    assert peak < 100 * MIB


def test_an_old_object_with_a_bad_status_is_not_read_value_by_value() -> None:
    tracemalloc.start()
    try:
        said = review({"request": {"uid": "r-1", "operation": "UPDATE", "object": job(parallelism=2), "oldObject": bad_status()}})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said["response"]["allowed"], "the operator compares with the stored object itself"
    assert peak < 20 * MIB


def test_texts_of_statuses_that_anyone_sends_are_not_kept() -> None:
    """A cache of 2048 texts of 4 MiB would fill the memory."""
    tracemalloc.start()
    try:
        for number in range(50):
            old = {**job(), "status": {"reconciliation": {"lastReconciledSpec": f"{number}" + "x" * MIB}}}
            review({"request": {"uid": "r-1", "operation": "UPDATE", "object": job(parallelism=2), "oldObject": old}})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20 * MIB


def test_a_uid_is_not_echoed_whatever_it_is() -> None:
    async def use(port: int) -> None:
        for uid in ("x" * MIB, [1] * 1000, None):
            body = json.dumps({"request": {"uid": uid, "operation": "CREATE", "object": job()}}).encode()
            assert (await ask(port, body))[0] == 400
        broken = review_of(wide(2)).replace(b'"f0"', b'"\\ud800\\u001b[2J"')
        code, said = await ask(port, broken)
        assert (code, said["response"]["allowed"]) == (200, False)

    with_webhook(use)


def test_the_event_loop_goes_on_while_an_object_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    began, finish = threading.Event(), threading.Event()

    def slow(*given: Any) -> dict[str, Any]:
        began.set()
        assert finish.wait(60)
        return review(*given)

    monkeypatch.setattr(serving, "review", slow)

    async def use(port: int) -> None:
        asked = asyncio.create_task(ask(port, review_of(job())))
        assert await asyncio.to_thread(began.wait, 60)
        assert not asked.done()
        finish.set()
        assert (await asked)[0] == 200

    with_webhook(use)
