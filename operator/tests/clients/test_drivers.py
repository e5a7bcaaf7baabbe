"""Requests to drivers over real connections: what is sent, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from statefulspark.errors import ConflictError, InvalidInputError, UnavailableError
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


def with_server(answers: dict[str, tuple[int, bytes]], use: Callable[[Drivers, str, list[str]], Awaitable[None]]) -> None:
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

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        drivers = Drivers()
        try:
            await use(drivers, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads)
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
        driver = await drivers.look(url, TOKEN, operations=False)
        assert (driver.batch, driver.slots[0].host, driver.retained, driver.operations) == (9, "exec-1", None, {})
        assert len(heads) == 1
        assert f"authorization: bearer {TOKEN}" in heads[0].lower()
        driver = await drivers.look(url, TOKEN, operations=True, checkpoints=True)
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
    ],
)
def test_each_refusal_is_an_error_of_ours(code: int, body: bytes, error: type[Exception]) -> None:
    async def use(drivers: Drivers, url: str, heads: list[str]) -> None:
        with pytest.raises(error):
            await drivers.look(url, TOKEN, operations=False)

    with_server({"GET /v1/status": (code, body)}, use)


def test_a_driver_that_is_not_there_does_not_answer() -> None:
    async def run() -> None:
        drivers = Drivers()
        with pytest.raises(UnavailableError):
            await drivers.look("http://127.0.0.1:9", TOKEN, operations=False)
        await drivers.close()

    asyncio.run(run())
