"""The contract on gs:// and abfss://: on real servers of their protocols, alone and under injected faults with retries above."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch

import pytest
from runtime.tests.storage.remote_stores import SERVICES, Service
from runtime.tests.storage.test_contract import PLAN, QUICK

from statefulspark.faults.storage import FaultyStore
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.retrying import RetryingStore
from statefulspark.testing.object_store import ObjectStoreContract

# The vendors' clients leave the connection of a request that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", params=SERVICES)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One server per scheme; every test has its own prefix."""
    with ExitStack() as stack:
        found = stack.enter_context(SERVICES[request.param](tmp_path_factory.mktemp("emulator")))
        stack.enter_context(patch.dict(os.environ, found.environment))
        yield found
    gc.collect()  # what the clients left is collected here and not in a test of another module


class TestRemoteStores(ObjectStoreContract):
    """On a real server."""

    @pytest.fixture
    def store(self, service: Service) -> ObjectStore:
        """Below a prefix of its own."""
        service.proxy.reset()
        return service.store()

    @pytest.mark.parametrize(
        "key", ["a b/c", "100%/%41", "q?x=1&y#z", "plus+and=&;,:@!$'()*", "\u00e9/\U0001f600", "~tilde/..x", "a/" * 80 + "deep"]
    )
    def test_names_are_kept(self, store: ObjectStore, key: str) -> None:
        """Names that need percent-encoding are the same in every operation, and never decoded twice."""
        store.put_if_absent(key, b"x")
        store.copy(key, f"{key}-copy")
        assert store.get(f"{key}-copy") == b"x"
        assert {info.key for info in store.list("")} == {key, f"{key}-copy"}
        info = store.head(key)
        assert info is not None
        assert info.size_bytes == 1
        store.delete([key, f"{key}-copy"])
        assert store.list("") == []


@pytest.mark.exhaustive
class TestRemoteStoresUnderFaults(ObjectStoreContract):
    """30 % of all attempts fail; nobody above notices."""

    @pytest.fixture
    def store(self, service: Service) -> RetryingStore:
        """Server, faults, retries."""
        service.proxy.reset()
        return RetryingStore(FaultyStore(service.store(), PLAN), QUICK)
