"""Limits the number and the duration of unauthenticated connections, so that they cannot lock out callers with the token.

A connection is unauthenticated until one of its requests carries the token. The server closes it ``timeout_s`` after it was accepted, even
if it is still sending headers or a body, or reading its response. If the limit is reached, a new connection displaces the oldest one of
the address with the most connections, so a client that opens hundreds of them displaces its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_SCOPE_KEY: Final = "statefulspark.connection"


class ClientConnection:
    """One accepted connection."""

    def __init__(self, limiter: ConnectionLimiter, transport: asyncio.Transport, host: str) -> None:
        self.host = host
        self._limiter = limiter
        self._transport = transport
        self._deadline: asyncio.TimerHandle | None = None

    def ends_after(self, seconds: float) -> None:
        """Abort the connection after ``seconds`` unless it authenticates before."""
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def authenticated(self) -> None:
        """Handle a request that carried the token: the connection no longer counts towards the limit."""
        self._limiter.remove(self)

    def cancel_deadline(self) -> None:
        """Cancel the pending abort."""
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        """Close the connection without waiting for the peer."""
        self._transport.abort()


class ConnectionLimiter:
    """The unauthenticated connections of one server. Not thread-safe: use it in the server's event loop only.

    Args:
        limit: Maximum number of unauthenticated connections.
        timeout_s: Maximum time from accepting a connection to a complete request with the token.
    """

    def __init__(self, *, limit: int, timeout_s: float) -> None:
        self._limit = limit
        self._timeout_s = timeout_s
        self._unauthenticated: dict[ClientConnection, None] = {}  # oldest first

    def add(self, connection: ClientConnection) -> None:
        """Add a new connection; closes another one if the limit is reached."""
        if len(self._unauthenticated) >= self._limit:
            busiest, _ = Counter(each.host for each in self._unauthenticated).most_common(1)[0]
            oldest = next(each for each in self._unauthenticated if each.host == busiest)
            self.remove(oldest)
            oldest.abort()
        self._unauthenticated[connection] = None
        connection.ends_after(self._timeout_s)

    def remove(self, connection: ClientConnection) -> None:
        """Remove a connection that was closed or has authenticated. Idempotent."""
        self._unauthenticated.pop(connection, None)
        connection.cancel_deadline()


def mark_authenticated(scope: Scope) -> None:
    """Record that a request of this connection carried the token."""
    connection: ClientConnection | None = scope.get(_SCOPE_KEY)
    if connection is not None:
        connection.authenticated()


def limited_protocol(limiter: ConnectionLimiter) -> type[H11Protocol]:
    """Return uvicorn's HTTP protocol, with connections limited by ``limiter``."""

    class LimitedProtocol(H11Protocol):
        """Registers its connection with the limiter and passes it to the application in the scope."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
            super().connection_made(transport)
            self._connection = ClientConnection(limiter, transport, self.client[0] if self.client else "")
            self.app = _with_connection(self.app, self._connection)
            limiter.add(self._connection)

        def connection_lost(self, exc: Exception | None) -> None:
            limiter.remove(self._connection)
            super().connection_lost(exc)

    return LimitedProtocol


def _with_connection(app: Any, connection: ClientConnection) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        scope[_SCOPE_KEY] = connection
        await app(scope, receive, send)

    return wrapped
