"""Serves the driver API from a daemon thread beside the job."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from statefulspark.errors import InvalidInputError, UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where the API listens."""

    host: str = "127.0.0.1"
    """Address to bind; the default is reachable from this machine only."""
    port: int = 0
    """0 takes a free port."""
    start_timeout_s: float = 10.0
    stop_timeout_s: float = 5.0
    """How long requests in flight may go on after ``stop``."""


class ApiServer:
    """uvicorn in a daemon thread; a context manager.

    Args:
        app: What answers.
        settings: Where it listens.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._settings = settings
        self._socket: socket.socket | None = None
        self._url = ""
        # log_config=None: records go to the process's own logging. No access log: its lines would say nothing new to anybody.
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            limit_concurrency=256,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=max(1, round(settings.stop_timeout_s)),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="driver-api", daemon=True)

    @property
    def url(self) -> str:
        """Where clients on this machine reach it, e.g. ``http://127.0.0.1:41234``."""
        return self._url

    def start(self) -> None:
        """Bind and serve.

        Raises:
            InvalidInputError: The address cannot be bound.
            UnavailableError: The server did not come up in time.
        """
        self._socket = _bind(self._settings.host, self._settings.port)
        self._url = _local_url(self._socket)
        self._thread.start()
        deadline = time.monotonic() + self._settings.start_timeout_s
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise UnavailableError(f"the driver API did not start on {self._settings.host}:{self._settings.port}; the log says why")
            time.sleep(0.005)

    def stop(self) -> None:
        """Stop accepting, let requests in flight end (bounded), close. Repeating it is fine."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(self._settings.stop_timeout_s + 2)
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop."""
        self.stop()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket] if self._socket else None)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # With the protocol named: asyncio switches Nagle's algorithm off only for sockets that say they are TCP; with it on, every
        # answer (head and body are two writes) waits 40 ms for the client's delayed acknowledgement.
        server = socket.socket(family, kind, protocol)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(address)
        except BaseException:
            server.close()
            raise
    except (OSError, OverflowError) as exc:
        raise InvalidInputError(
            f"{host}:{port} cannot be bound ({exc})", field="--api-host/--api-port", remedy="Take another port, or 0 for a free one"
        ) from exc
    return server


def _local_url(server: socket.socket) -> str:
    host, port = server.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"
