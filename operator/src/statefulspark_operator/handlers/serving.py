"""What the operator serves: health, metrics and the validating webhook, each on its own port. The only home of FastAPI and uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from statefulspark_operator.handlers.admission import review

_log = structlog.get_logger("statefulspark.operator.serving")
_BODY_MAX: Final = 4 << 20
_CERTIFICATES_S: Final = 10.0


def health_app(alive: Callable[[], str | None], ready: Callable[[], str | None]) -> FastAPI:
    """Probes; each callable returns what is wrong, None for nothing."""
    app = FastAPI(openapi_url=None)

    def answer(problem: str | None) -> Response:
        return PlainTextResponse(problem or "ok", 200 if problem is None else 503)

    @app.get("/healthz")
    async def healthz() -> Response:
        return answer(alive())

    @app.get("/readyz")
    async def readyz() -> Response:
        return answer(ready())

    return app


def metrics_app(registry: CollectorRegistry) -> FastAPI:
    """Prometheus text; counts and times only, nothing of what jobs hold."""
    app = FastAPI(openapi_url=None)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app


def webhook_app() -> FastAPI:
    """The validating webhook: AdmissionReview v1 in, AdmissionReview v1 out."""
    app = FastAPI(openapi_url=None)

    @app.post("/validate")
    async def validate(request: Request) -> Response:
        if int(request.headers.get("content-length", 0)) > _BODY_MAX:
            return JSONResponse({"message": "too large"}, 413)
        try:
            body: Any = await request.json()
            return JSONResponse(review(body))
        except (ValueError, KeyError, TypeError):
            return JSONResponse({"message": "expected an AdmissionReview of admission.k8s.io/v1"}, 400)

    return app


async def serve(app: FastAPI, port: int, *, certificates: Path | None = None) -> None:
    """Serve until cancelled; with ``certificates``, a folder of tls.crt and tls.key, over TLS, and with new ones as soon as they are there."""
    config = uvicorn.Config(app, host="0.0.0.0", port=port, log_config=None, access_log=False, lifespan="off")  # noqa: S104  a pod's own address
    if certificates is not None:
        await _await_certificates(certificates)
        config.ssl_certfile, config.ssl_keyfile = certificates / "tls.crt", certificates / "tls.key"
    server = uvicorn.Server(config)
    # The process decides about signals, not one of its servers.
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    config.load()
    async with asyncio.TaskGroup() as group:
        if certificates is not None and config.ssl is not None:
            group.create_task(_renew(config.ssl, certificates))
        await server.serve()


async def _await_certificates(folder: Path) -> None:
    """cert-manager may need a while for the first ones."""
    while not ((folder / "tls.crt").is_file() and (folder / "tls.key").is_file()):
        _log.warning("no webhook certificate yet", folder=str(folder))
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
                _log.info("webhook certificate renewed")
        except (OSError, ssl.SSLError) as error:
            _log.warning("webhook certificate cannot be read", error=str(error))


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    yield
