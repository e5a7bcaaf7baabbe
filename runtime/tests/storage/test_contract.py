"""Each store keeps the contract, alone and under injected faults with retries above."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.faults.storage import FaultPlan, FaultyStore
from statefulspark.storage.local.store import LocalStore
from statefulspark.storage.retrying import RetryingStore, RetryPolicy
from statefulspark.storage.s3.store import S3Store
from statefulspark.testing.object_store import ObjectStoreContract

QUICK = RetryPolicy(budget_s=30, wait_s_first=0.001, wait_s_max=0.01)
PLAN = FaultPlan(rate=0.3, seed=11)


class TestLocalStore(ObjectStoreContract):
    """On a folder."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        """In a folder that does not exist yet."""
        return LocalStore(tmp_path / "store" / "deep")


class TestS3Store(ObjectStoreContract):
    """On a real HTTP server."""

    @pytest.fixture
    def store(self, s3_store: S3Store) -> S3Store:
        """Below a prefix of its own."""
        return s3_store


class TestLocalStoreUnderFaults(ObjectStoreContract):
    """30 % of all attempts fail; nobody above notices."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> RetryingStore:
        """Folder, faults, retries."""
        return RetryingStore(FaultyStore(LocalStore(tmp_path / "store"), PLAN), QUICK)


class TestS3StoreUnderFaults(ObjectStoreContract):
    """The same over HTTP."""

    @pytest.fixture
    def store(self, s3_store: S3Store) -> RetryingStore:
        """Server, faults, retries."""
        return RetryingStore(FaultyStore(s3_store, PLAN), QUICK)
