"""The REST API of drivers, as the operator uses it. The only home of aiohttp in the operator."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from statefulspark.config.kubernetes.pods import API_KEEP_ALIVE_S, TLS_SERVER_NAME
from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark_operator.api.drivers import Driver
from statefulspark_operator.api.responses import CheckpointsResponse, OperationsResponse, ProblemResponse, StatusResponse, driver_of, parse
from statefulspark_operator.clients.breaker import Breaker

_CONNECT_S: Final = 2.0
_REQUEST_S: Final = 5.0
"""From the first byte sent to the last one read, however slowly they come."""
_FETCH_S: Final = 8.0
"""All requests of one reconciliation together."""
_BODY_MAX: Final = 4 << 20
_PART_BYTES: Final = 64 << 10
_IDLE_MIN_S: Final = 1.5
"""Longer than the pause between the polls of a transition."""
_CLOSES_EARLIER_S: Final = 10.0
"""Time by which the operator closes an idle connection before the driver does: a request must not meet a connection that is being closed."""
_KEPT_MAX: Final = 1000
"""Connections that are kept from one poll to the next. Each takes about 60 KiB; a new one takes more CPU time than the poll itself."""
_TRUSTED_MAX: Final = 4096
_CONNECTIONS: Final = 200
"""At once; others wait."""


class Drivers:
    """Client for the drivers of all jobs, with one connection pool.

    Every method raises UnavailableError if the driver does not respond, InvalidInputError if it rejects the request.

    Args:
        poll_interval_s: How often a stable driver is polled. Its connection is kept until the next poll, if drivers keep theirs for that long.
    """

    def __init__(self, *, poll_interval_s: float = 0.0) -> None:
        idle_s = 1.5 * poll_interval_s
        self._idle_s = idle_s if _IDLE_MIN_S <= idle_s <= API_KEEP_ALIVE_S - _CLOSES_EARLIER_S else _IDLE_MIN_S
        self._kept: OrderedDict[str, float] = OrderedDict()
        """When a connection that is kept was used last, by URL; the latest at the end."""
        self._session: aiohttp.ClientSession | None = None
        self._breaker = Breaker()
        self._trusted: OrderedDict[str, ssl.SSLContext] = OrderedDict()
        """By authority; those asked for last at the end."""

    async def fetch(self, url: str, token: str, *, operations: bool, checkpoints: bool = False, authority: str | None = None) -> Driver:
        """Fetches the driver's status, with ``operations`` also its operations, and with ``checkpoints`` its retained checkpoints.

        ``authority`` is the PEM of the CA that signs the driver's certificate.
        """

        async def ask(path: str) -> bytes:
            return await self._call("GET", url, path, token, authority=authority)

        try:
            async with asyncio.timeout(_FETCH_S):
                status = parse(StatusResponse, await ask("/v1/status"))
                asked = parse(OperationsResponse, await ask("/v1/operations")) if operations else None
                kept = parse(CheckpointsResponse, await ask("/v1/checkpoints")) if checkpoints else None
        except TimeoutError as error:
            raise UnavailableError(f"the driver at {url} does not respond within {_FETCH_S:.0f} s") from error
        return driver_of(status, asked, kept)

    async def ask(
        self, url: str, token: str, kind: str, key: str, body: dict[str, Any] | None, timeout_s: int, *, authority: str | None = None
    ) -> None:
        """Requests an operation without waiting for it. A second request with the same ``key`` returns the first operation."""
        path = {"stop": "stop", "cancel": "cancel", "rescale": "rescale", "savepoint": "savepoints", "checkpoint": "checkpoints"}[kind]
        params = {"wait": "false", "timeout_s": timeout_s}
        headers = {"Idempotency-Key": key}
        await self._call("POST", url, f"/v1/{path}", token, authority=authority, json=body, params=params, headers=headers)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _call(
        self, method: str, url: str, path: str, token: str, *, authority: str | None, headers: dict[str, str] | None = None, **options: Any
    ) -> bytes:
        if authority is not None:
            options |= {"ssl": self._trust(authority, url), "server_hostname": TLS_SERVER_NAME}
        # Uncompressed: a few bytes could become any number.
        sent = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity", **(headers or {})}
        if not self._keeps(url):
            sent["Connection"] = "close"
        with self._breaker.guarded(url):
            try:
                async with self._connected().request(method, url + path, headers=sent, allow_redirects=False, **options) as response:
                    status, body = response.status, await _read(response)
            except aiohttp.ClientConnectorCertificateError as error:
                raise InvalidInputError(f"the driver at {url} presents a certificate that is not signed by the job's CA") from error
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise UnavailableError(f"the driver at {url} does not respond ({type(error).__name__})") from error
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(status, body)
        return body

    def _keeps(self, url: str) -> bool:
        """True if the connection is kept after this request: the memory of idle connections is limited."""
        now = time.monotonic()
        while self._kept and now - next(iter(self._kept.values())) > self._idle_s:
            self._kept.popitem(last=False)
        if url not in self._kept and len(self._kept) >= _KEPT_MAX:
            return False
        self._kept[url] = now
        self._kept.move_to_end(url)
        return True

    def _trust(self, authority: str, url: str) -> ssl.SSLContext:
        """Context that accepts the certificates of one job; the same for each of its requests, or connections would not be reused."""
        context = self._trusted.pop(authority, None)
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            try:
                context.load_verify_locations(cadata=authority)
            except (ssl.SSLError, ValueError) as error:
                raise InvalidInputError(f"the CA of the driver at {url} is not a valid certificate") from error
            if len(self._trusted) >= _TRUSTED_MAX:
                self._trusted.popitem(last=False)
        self._trusted[authority] = context
        return context

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A proxy from the environment must not see the tokens of pods. Drivers close idle connections later than this.
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_REQUEST_S, sock_connect=_CONNECT_S),
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=self._idle_s),
                trust_env=False,
                auto_decompress=False,
            )
        return self._session


def _refusal(status: int, body: bytes) -> StatefulSparkError:
    """The error that an answer other than success stands for."""
    try:
        message = parse(ProblemResponse, body).error.message
    except UnavailableError:
        message = f"HTTP {status}"
    if status == HTTPStatus.CONFLICT:
        return ConflictError(f"the driver: {message}")
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return InvalidInputError(f"the driver rejected the request: {message}")
    return UnavailableError(f"the driver: {message}")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, up to its bound: as much as a driver of 8000 slots says."""
    body = bytearray()
    async for part in response.content.iter_chunked(_PART_BYTES):
        body += part
        if len(body) > _BODY_MAX:
            raise UnavailableError(f"the driver's response exceeds {_BODY_MAX >> 20} MiB")
    return bytes(body)
