"""HTTP servers of the operator: health, metrics and the validating webhook, each on its own port. The only home of FastAPI and uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import h11
import structlog
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from uvicorn.protocols.http.h11_impl import H11Protocol

from statefulspark.config.state_backend import StateBackendType
from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark_operator.handlers.admission import SnapshotOf, denied, review
from statefulspark_operator.handlers.request_bodies import BODY_MAX, RequestBodyReader
from statefulspark_operator.reconcile.tenancy import Tenancy
from statefulspark_operator.settings import PREFIX

_log = structlog.get_logger("statefulspark.operator.serving")
_UID: Final = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([-A-Za-z0-9]{1,64})"')
"""The API server writes the review's uid before the object: what a tenant wrote comes after it."""
_HEAD_S: Final = 10.0
"""Timeout for the head of a request, in seconds."""
_CONNECTIONS: Final = 500
"""Concurrent connections per port; a TLS connection takes about 100 KiB."""
_BACKLOG: Final = 2048
_CERTIFICATES_S: Final = 10.0


def health_app(alive: Callable[[], str | None], ready: Callable[[], str | None], *, notes: Callable[[], list[str]] = list) -> FastAPI:
    """Probes.

    Args:
        alive: Returns the reason why the process must be restarted, None if it is healthy.
        ready: Returns the reason why the process is not ready yet.
        notes: Returns further lines about problems that a restart does not fix.
    """
    app = FastAPI(openapi_url=None)

    def answer(problem: str | None) -> Response:
        return PlainTextResponse("\n".join([problem or "ok", *notes()]), 200 if problem is None else 503)

    @app.get("/healthz")
    async def healthz() -> Response:
        return answer(alive())

    @app.get("/readyz")
    async def readyz() -> Response:
        return answer(ready())

    return app


def metrics_app(registry: CollectorRegistry) -> FastAPI:
    """Metrics in Prometheus text format; counts and durations only, no data of jobs."""
    app = FastAPI(openapi_url=None)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app


def webhook_app(tenancy: Tenancy, snapshot: SnapshotOf, default_backend: str = StateBackendType.ROCKSDB) -> FastAPI:
    """The validating webhook: AdmissionReview v1 in, AdmissionReview v1 out.

    Reviews are answered one after another on a thread of their own: however long one takes, the event loop goes on and one parsed body is in memory.
    """
    app, bodies = FastAPI(openapi_url=None), RequestBodyReader()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="webhook")

    def answer(body: bytes) -> Response:
        try:
            return JSONResponse(review(json.loads(body), tenancy, snapshot, default_backend))
        except RecursionError:
            uid = _UID.search(body)
            if uid is None:
                return _refused(400, "the object is nested too deeply")
            return JSONResponse(
                denied(uid[1].decode(), "spec: nested too deeply. Remove the nested fields; no field of a job or snapshot is that deep")
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return _refused(400, "expected an AdmissionReview of admission.k8s.io/v1")

    @app.post("/validate")
    async def validate(request: Request) -> Response:
        if int(request.headers.get("content-length", 0)) > BODY_MAX:
            return _refused(413, "the request body is too large")
        try:
            async with bodies.read(request.stream()) as body:
                return await asyncio.get_running_loop().run_in_executor(thread, answer, body)
        except InvalidInputError as error:
            return _refused(413, str(error))
        except UnavailableError as error:
            return _refused(503, str(error))

    return app


def _refused(code: int, message: str) -> Response:
    # Close the connection: the unread rest of the body would be parsed as the next request.
    return JSONResponse({"message": message}, code, headers={"connection": "close"})


class _HeadTimeout(H11Protocol):
    """Connection with a timeout for the head of each request; uvicorn itself waits indefinitely."""

    _head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        awaited = self.conn.their_state is h11.IDLE
        if awaited and self._head_due is None:
            self._head_due = self.loop.call_later(_HEAD_S, self.transport.close)
        elif not awaited and self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None


async def serve(app: FastAPI, port: int, *, name: str, certificates: Path | None = None) -> None:
    """Serve ``app`` until cancelled.

    Args:
        app: The application.
        port: TCP port, on all IPv4 addresses of the pod.
        name: What the port is for: ``health``, ``metrics`` or ``webhook``. Its setting is ``<name>_port``.
        certificates: Directory with tls.crt and tls.key, to serve over TLS. Renewed files are loaded as soon as they appear.

    Raises:
        InvalidInputError: The port cannot be opened, or the certificate cannot be loaded.
    """
    with _listen(port, name) as listener:
        await _serve(app, listener, certificates)


def _listen(port: int, name: str) -> socket.socket:
    """Opens the port here: uvicorn answers a taken port with SystemExit, which ends its task and leaves the process running without a server."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", port))  # noqa: S104  a pod's own address
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidInputError(
            f"cannot listen on port {port}: {error.strerror or error}",
            field=f"{name}_port",
            remedy=f"Stop the process that uses the port, or set {PREFIX}{name.upper()}_PORT to a free one",
        ) from error
    return listener


async def _serve(app: FastAPI, listener: socket.socket, certificates: Path | None) -> None:
    config = uvicorn.Config(
        app,
        http=_HeadTimeout,
        ws="none",
        limit_concurrency=_CONNECTIONS,
        log_config=None,
        access_log=False,
        lifespan="off",
    )
    if certificates is not None:
        await _await_certificates(certificates)
        config.ssl_certfile, config.ssl_keyfile = certificates / "tls.crt", certificates / "tls.key"
    server = uvicorn.Server(config)
    # The process handles signals, not one of its servers.
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidInputError(
            f"cannot load tls.crt and tls.key from {certificates}: {error}",
            field="webhook_certificates",
            remedy="Check the Secret with the webhook's certificate",
        ) from error
    async with asyncio.TaskGroup() as group:
        if certificates is not None and config.ssl is not None:
            group.create_task(_renew(config.ssl, certificates))
        try:
            await server.serve(sockets=[listener])
        finally:
            _close(server)


def _close(server: uvicorn.Server) -> None:
    """Close what uvicorn leaves open when it is cancelled."""
    for listening in getattr(server, "servers", ()):
        listening.close()
    for connection in tuple(server.server_state.connections):
        connection.transport.close()


async def _await_certificates(folder: Path) -> None:
    """cert-manager may need a while for the first ones."""
    while not ((folder / "tls.crt").is_file() and (folder / "tls.key").is_file()):
        _log.warning("waiting for the webhook certificate", folder=str(folder))
        await asyncio.sleep(2.0)


async def _renew(context: ssl.SSLContext, folder: Path) -> None:
    before = (folder / "tls.crt").read_bytes()
    while True:
        await asyncio.sleep(_CERTIFICATES_S)
        try:
            now = (folder / "tls.crt").read_bytes()
            if now != before:
                context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
                before = now
                _log.info("reloaded the webhook certificate")
        except (OSError, ssl.SSLError) as error:
            _log.warning("cannot load the webhook certificate", error=str(error))


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    yield
