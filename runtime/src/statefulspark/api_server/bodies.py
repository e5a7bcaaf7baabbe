"""Limits request bodies in size and time: no request of the API is longer than a few hundred bytes."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from statefulspark.api_server.authentication import OPEN_PATHS
from statefulspark.api_server.problems import Problem
from statefulspark.coordinator.controls import JobError

BODY_BYTES_MAX: Final = 64 << 10
BODY_S_MAX: Final = 30.0


class BodyLimit:
    """ASGI middleware: a body that is longer is answered with 413, one that takes longer with 408, and no more of it is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what fits."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:  # the probes read no body at all
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(BODY_S_MAX):
                messages = await _received(receive)
        except TimeoutError:
            await _refusal(408, f"the body did not arrive within {BODY_S_MAX:.0f} s")(scope, receive, send)
            return
        if messages is None:
            await _refusal(413, f"the body is longer than {BODY_BYTES_MAX} bytes; /docs lists what a request takes")(scope, receive, send)
            return
        pending = iter(messages)

        async def again() -> Message:
            return next(pending, None) or await receive()

        await self._app(scope, again, send)


async def _received(receive: Receive) -> list[Message] | None:
    """All of the body, or None if it is too long."""
    messages: list[Message] = []
    length = 0
    while True:
        message = await receive()
        length += len(message.get("body", b""))
        if length > BODY_BYTES_MAX:
            return None
        messages.append(message)
        if not message.get("more_body", False):
            return messages


def _refusal(status: int, message: str) -> JSONResponse:
    body = Problem(status, JobError(reason="InvalidInput", message=message)).body()
    return JSONResponse(body, status, headers={"Connection": "close"})
