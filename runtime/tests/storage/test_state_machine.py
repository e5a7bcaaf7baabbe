"""Any sequence of operations leaves a store and a dict equal, with and without faults below retries."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from statefulspark.errors import ConflictError
from statefulspark.faults.storage import FaultPlan, FaultyStore
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.store import LocalStore
from statefulspark.storage.retrying import RetryingStore, RetryPolicy
from statefulspark.storage.s3.store import S3Store

# No key is a folder of another: file systems cannot hold both.
KEYS = ["a", "a-b", "b/1", "b/10", "b/2/x", "b/2/y", "b-", "c/d/e/f", "\u00e9/\U0001f600"]
KEY = st.sampled_from(KEYS)
DATA = st.sampled_from([b"", b"x", b"y" * 100, bytes(range(256))])
PREFIX = st.sampled_from(sorted({key[:end] for key in KEYS for end in range(len(key) + 1)} | {"zz"}))


class StoreMachine(RuleBasedStateMachine):
    """The store under test beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.model: dict[str, bytes] = {}
        self.store = self.make()

    def make(self) -> ObjectStore:
        return LocalStore(self.folder / "store")

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(key=KEY, data=DATA)
    def put(self, key: str, data: bytes) -> None:
        self.store.put(key, data)
        self.model[key] = data

    @rule(key=KEY, data=DATA)
    def put_file(self, key: str, data: bytes) -> None:
        (self.folder / "source").write_bytes(data)
        self.store.put_file(key, self.folder / "source")
        self.model[key] = data

    @rule(key=KEY, data=DATA)
    def put_if_absent(self, key: str, data: bytes) -> None:
        if self.model.setdefault(key, data) == data:
            self.store.put_if_absent(key, data)
        else:
            with pytest.raises(ConflictError):
                self.store.put_if_absent(key, data)

    @rule(source=KEY, to=KEY)
    def copy(self, source: str, to: str) -> None:
        if source in self.model:
            self.store.copy(source, to)
            self.model[to] = self.model[source]
        else:
            with pytest.raises(KeyError):
                self.store.copy(source, to)

    @rule(keys=st.lists(KEY, max_size=4))
    def delete(self, keys: list[str]) -> None:
        self.store.delete(keys)
        for key in keys:
            self.model.pop(key, None)

    @rule(key=KEY)
    def read(self, key: str) -> None:
        info = self.store.head(key)
        if key in self.model:
            self.store.get_file(key, self.folder / "target")
            assert self.store.get(key) == (self.folder / "target").read_bytes() == self.model[key]
            assert info is not None
            assert (info.key, info.size_bytes) == (key, len(self.model[key]))
        else:
            assert info is None
            with pytest.raises(KeyError):
                self.store.get(key)

    @rule(prefix=PREFIX)
    def list_prefix(self, prefix: str) -> None:
        found = [(info.key, info.size_bytes) for info in self.store.list(prefix)]
        assert found == sorted((key, len(data)) for key, data in self.model.items() if key.startswith(prefix))

    @rule(prefix=PREFIX)
    def list_folders(self, prefix: str) -> None:
        folder = prefix[: prefix.rfind("/") + 1]
        below = [key.removeprefix(folder) for key in self.model if key.startswith(folder)]
        assert self.store.list_folders(folder) == sorted({rest.partition("/")[0] for rest in below if "/" in rest})

    @invariant()
    def holds_the_same(self) -> None:
        assert {info.key: info.size_bytes for info in self.store.list("")} == {key: len(data) for key, data in self.model.items()}


class FaultyMachine(StoreMachine):
    """Half of all attempts fail below the retries."""

    def make(self) -> ObjectStore:
        policy = RetryPolicy(budget_s=60, wait_s_first=1e-6, wait_s_max=1e-5)
        return RetryingStore(FaultyStore(super().make(), FaultPlan(rate=0.5, seed=3)), policy, sleep=lambda _s: None)


def test_local_store() -> None:
    """A folder behaves as a dict."""
    run_state_machine_as_test(StoreMachine)


def test_store_under_faults() -> None:
    """Retries hide every fault: the same dict."""
    run_state_machine_as_test(FaultyMachine, settings=settings(max_examples=30))


def test_s3_store(s3_store: S3Store) -> None:
    """A bucket over HTTP behaves as a dict; few runs, since each request takes milliseconds."""

    class S3Machine(StoreMachine):
        def make(self) -> ObjectStore:
            s3_store.delete(KEYS)
            return s3_store

    run_state_machine_as_test(S3Machine, settings=settings(max_examples=4, stateful_step_count=20))
