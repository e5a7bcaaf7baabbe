"""The broker that the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .broker import Broker, running_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found
