"""A real S3 server (moto, over HTTP on loopback) behind a proxy that can fail, and stores on it.

moto honours ``If-None-Match: *``, but checks and writes in two steps without a lock; the proxy lets one conditional write
through at a time, as S3 itself guarantees.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from runtime.tests.s3_server import BUCKET, s3_server
from runtime.tests.storage.flaky_proxy import FlakyProxy

from statefulspark.storage.limits import S3Limits
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings


@pytest.fixture(scope="session")
def proxy() -> Iterator[FlakyProxy]:
    """The S3 service; one per session, because every test has its own prefix."""
    with s3_server() as server:
        proxy = FlakyProxy(server.host, server.port)
        try:
            yield proxy
        finally:
            proxy.close()


@pytest.fixture
def settings(proxy: FlakyProxy) -> StorageSettings:
    """How to reach it."""
    proxy.reset()
    return StorageSettings(endpoint=proxy.url, region="us-east-1", access_key_id="test", secret_access_key="very-secret")


@pytest.fixture
def limits() -> S3Limits:
    """Small parts, so that large files are quick; one attempt, so that retries are seen where they are tested."""
    return S3Limits(part_bytes=5 << 20, copy_part_bytes=5 << 20, connect_timeout_s=2, read_timeout_s=20, attempts=1)


@pytest.fixture
def s3_store(settings: StorageSettings, limits: S3Limits) -> S3Store:
    """An empty store."""
    return S3Store(BUCKET, f"tests/{uuid.uuid4().hex}", settings, limits=limits)
