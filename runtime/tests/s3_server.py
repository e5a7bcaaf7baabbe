"""An S3 service for tests: moto over HTTP on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

App = Callable[[dict[str, Any], Any], Iterable[bytes]]
"""A WSGI application."""
BUCKET = "bucket"
ACCESS_KEY = "test"
"""Both halves of the credentials; moto takes any."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running service with the empty bucket ``bucket``."""

    host: str
    port: int
    client: Any
    """A boto3 client of it."""

    @property
    def endpoint(self) -> str:
        """URL of the service."""
        return f"http://{self.host}:{self.port}"


@contextmanager
def s3_server(around: Callable[[App], App] | None = None) -> Iterator[S3Server]:
    """Serve until the end of the block; ``around`` returns an application that sees each request first."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    if around is not None:
        # moto's thread makes the server before it tells its port.
        running: Any = server._server
        running.app = around(running.app)
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=ACCESS_KEY,
    )
    try:
        client.create_bucket(Bucket=BUCKET)
        yield S3Server(host, port, client)
    finally:
        server.stop()
