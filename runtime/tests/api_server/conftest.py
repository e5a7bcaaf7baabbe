"""A live server (real uvicorn, real HTTP) around a fake job."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from runtime.tests.api_server.fake_job import START_MS, FakeJob

from statefulspark.api_server.api import create_app
from statefulspark.api_server.server import ApiServer, ServerSettings
from statefulspark.logs.tail import LogTail

TOKEN = "not-a-real-token-0123456789abcdef"


@pytest.fixture
def token() -> str:
    return TOKEN


@pytest.fixture
def job() -> FakeJob:
    return FakeJob()


@pytest.fixture
def tail() -> LogTail:
    return LogTail()


@pytest.fixture
def url(job: FakeJob, tail: LogTail) -> Iterator[str]:
    with ApiServer(create_app(job, token=TOKEN, clock_ms=lambda: START_MS + 5_000, tail=tail), ServerSettings()) as server:
        yield server.url


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=20) as client:
        yield client


@pytest.fixture
def anonymous(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
        yield client
