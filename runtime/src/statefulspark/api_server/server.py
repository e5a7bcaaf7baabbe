"""Serves the driver API from a daemon thread in the driver."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from starlette.types import ASGIApp

from statefulspark.api_server.connection_limits import ConnectionLimiter, limited_protocol
from statefulspark.config.kubernetes.pods import API_KEEP_ALIVE_S
from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.rpc.certificates import RENEWAL_POLL_S, CertificateFolder

_log = logging.getLogger(__name__)
_HANDSHAKE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Address and limits of the API server."""

    host: str = "127.0.0.1"
    """Address to bind; the default is reachable from this machine only."""
    port: int = 0
    """0 takes a free port."""
    start_timeout_s: float = 10.0
    certificates: CertificateFolder | None = None
    """Serve HTTPS with these, read again when they are renewed; None serves HTTP."""
    unauthenticated_max: int = 128
    """Maximum number of connections that have not sent the token yet."""
    unauthenticated_timeout_s: float = 10.0
    """The server closes a connection that has not sent the token within this time."""
    stop_timeout_s: float = 5.0
    """How long requests in flight may continue after ``stop``."""


class ApiServer:
    """uvicorn in a daemon thread; a context manager.

    Args:
        app: The application to serve.
        settings: Address and limits.
        listener: A socket from `bind`; None binds at the start. The server closes it.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, listener: socket.socket | None = None) -> None:
        self._settings = settings
        self._socket = listener
        self._url = ""
        # log_config=None: records go to the process's own logging. The access log is off, because operations are logged where they start.
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            http=limited_protocol(ConnectionLimiter(limit=settings.unauthenticated_max, timeout_s=settings.unauthenticated_timeout_s)),
            ssl_certfile=settings.certificates.certificate_file if settings.certificates is not None else None,
            ssl_keyfile=settings.certificates.key_file if settings.certificates is not None else None,
            limit_concurrency=1024,  # callers with the token; ConnectionLimiter bounds all others
            timeout_keep_alive=API_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(settings.stop_timeout_s)),
        )
        self._config = config
        self._stopping = threading.Event()
        self._stamp = settings.certificates.stamp() if settings.certificates is not None else (0, 0)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="driver-api", daemon=True)

    @property
    def url(self) -> str:
        """URL for clients on this machine, e.g. ``http://127.0.0.1:41234``."""
        return self._url

    def start(self) -> None:
        """Bind and serve.

        Raises:
            InvalidInputError: The address cannot be bound.
            UnavailableError: The server did not come up in time.
        """
        if self._socket is None:
            self._socket = bind(self._settings)
        self._url = _local_url(self._socket, "https" if self._settings.certificates is not None else "http")
        self._load()
        self._thread.start()
        deadline = time.monotonic() + self._settings.start_timeout_s
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise UnavailableError(
                    f"the driver API did not start on {self._settings.host}:{self._settings.port}; see the log for the reason"
                )
            time.sleep(0.005)
        if self._settings.certificates is not None:
            threading.Thread(target=self._renew_when_told, name="driver-api-certificates", daemon=True).start()

    def renew(self) -> bool:
        """Go over to the certificates that are in the folder now, for connections from here on; returns whether they are others and in use."""
        folder, context = self._settings.certificates, self._config.ssl
        if folder is None or context is None or (stamp := folder.stamp()) == self._stamp:
            return False
        try:
            _load_chain(context, folder)
        except (StatefulSparkError, OSError) as error:
            _log.warning("renewed certificates are invalid, keeping the previous ones: %s", error)
            return False
        self._stamp = stamp
        return True

    def stop(self) -> None:
        """Stop accepting, let requests in flight end (bounded), close. Repeating it is fine."""
        self._stopping.set()
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

    def _load(self) -> None:
        try:
            self._config.load()
        except OSError as error:
            folder = self._settings.certificates
            raise InvalidInputError(
                f"the certificate cannot be used ({error})",
                field=folder.path if folder is not None else None,
                remedy="Provide a certificate and its key in PEM format",
            ) from error

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket] if self._socket else None))

    def _renew_when_told(self) -> None:
        while not self._stopping.wait(RENEWAL_POLL_S):
            self.renew()


class _Loop(asyncio.SelectorEventLoop):
    """asyncio's usual loop, which gives a client less than a minute for the TLS handshake; uvicorn has no setting for that."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """As the base, with the time bounded."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", _HANDSHAKE_S)
        return await super().create_server(*arguments, **options)


def _load_chain(context: ssl.SSLContext, folder: CertificateFolder) -> None:
    """Load what was read at one moment, so that certificate and key belong together; the ssl module takes files only.

    OpenSSL keeps what it had when certificate and key do not fit each other, but not if the file changes between the two: so they are tried out before.
    """
    found = folder.read()
    with tempfile.TemporaryDirectory(prefix="statefulspark-") as private:
        path = Path(private) / "chain.pem"
        path.touch(mode=0o600)
        path.write_bytes(found.certificate + b"\n" + found.key)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
        context.load_cert_chain(path)


def bind(settings: ServerSettings) -> socket.socket:
    """Reserve the address, so that a port in use is known before Spark is started.

    Raises:
        InvalidInputError: The address cannot be bound.
    """
    host, port = settings.host, settings.port
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
            f"{host}:{port} cannot be bound ({exc})", field="--api-host/--api-port", remedy="Choose another port, or 0 for a free one"
        ) from exc
    return server


def _local_url(server: socket.socket, scheme: str) -> str:
    host, port = server.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"{scheme}://[{address}]:{port}" if address.version == 6 else f"{scheme}://{address}:{port}"
