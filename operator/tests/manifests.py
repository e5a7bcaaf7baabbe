"""The spec of the job that most tests of the operator are about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import pytest

_WRITTEN: ContextVar[Mapping[str, Any]] = ContextVar("written", default=MappingProxyType({"parallelism": 2, "maxParallelism": 128}))
"""Fields of `manifest` that have a default and are written down all the same."""


def manifest(**spec: Any) -> dict[str, Any]:
    """The spec of a job that can run."""
    base = {
        "image": "shop/counts:1",
        "job": {"script": "counts.py"},
        "checkpointing": {"dir": "s3://bucket/checkpoints", "savepointDir": "s3://bucket/savepoints"},
    }
    return {**base, **_WRITTEN.get(), **spec}


@pytest.fixture(params=["defaults written", "defaults unset"], scope="module")
def defaults(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether `manifest` writes defaults down. A default that is written may mean something else, and a person writes few."""
    if request.param == "defaults written":
        yield True
        return
    token = _WRITTEN.set({"parallelism": 2})
    yield False
    _WRITTEN.reset(token)
