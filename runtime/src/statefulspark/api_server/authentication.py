"""Authentication: every path except the two health probes requires the bearer token, whether the path exists or not.

This is middleware in front of the router, not a dependency of each route, so that a new route is protected by default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from statefulspark.api_server.connection_limits import mark_authenticated
from statefulspark.api_server.tokens import TokenCheck

OPEN_PATHS = frozenset({"/healthz", "/readyz"})

_PROBLEM = {
    "error": {
        "reason": "Unauthorized",
        "message": "This API needs the header 'Authorization: Bearer <token>'. The token is in the job's connection file, "
        "or is the one given to the driver by STATEFULSPARK_API_TOKEN or STATEFULSPARK_API_TOKEN_FILE.",
    }
}

SECURITY_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


class BearerGate:
    """ASGI middleware. ``login_page`` (no data in it) is the body of a refusal when a browser asks for ``/``."""

    def __init__(self, app: ASGIApp, *, check: TokenCheck, login_page: str, login_policy: str) -> None:
        self._app = app
        self._check = check
        self._page = login_page.encode()
        self._policy = login_policy
        self._problem = json.dumps(_PROBLEM).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401 without reading the body."""
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in OPEN_PATHS):
            await self._app(scope, receive, send)
            return
        headers = list(scope["headers"])
        given = [value for name, value in headers if name == b"authorization"]
        if self._check.accepts(given[0] if len(given) == 1 else None):
            mark_authenticated(scope)
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "http":
            wants_html = scope["path"] == "/" and any(name == b"accept" and b"text/html" in value for name, value in headers)
            await self._refuse(send, html=wants_html and scope["method"] in {"GET", "HEAD"}, head=scope["method"] == "HEAD")
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _refuse(self, send: Send, *, html: bool, head: bool) -> None:
        body = self._page if html else self._problem
        headers = {
            **SECURITY_HEADERS,
            "Content-Type": "text/html; charset=utf-8" if html else "application/json",
            "Content-Length": str(len(body)),
            "WWW-Authenticate": 'Bearer realm="statefulspark"',
            "Connection": "close",
        }
        if html:
            headers["Content-Security-Policy"] = self._policy
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 401, "headers": raw})
        await send({"type": "http.response.body", "body": b"" if head else body})


def _with_headers(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message.get("headers", []),
                *((name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()),
            ]
        await send(message)

    return add
