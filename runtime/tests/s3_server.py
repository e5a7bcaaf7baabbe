"""An S3 service for tests: moto over HTTP on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

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
def s3_server() -> Iterator[S3Server]:
    """Serve until the end of the block."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
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
