"""What the tests of state share: stores of each kind, and a backend made with few words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statefulspark.state.backend import BatchBudget
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyValueStore]:
    """Each kind of store, empty."""
    opened: KeyValueStore = HeapStore() if request.param == "memory" else RocksDBStore(tmp_path / "db")
    yield opened
    opened.close()


@pytest.fixture
def make_slot(tmp_path: Path) -> Callable[..., KeyedSlot]:
    """Makes a slot in memory; budgets by name."""

    def make(store: KeyValueStore | None = None, **budget: Any) -> KeyedSlot:
        return KeyedSlot(store if store is not None else HeapStore(), tmp_path, BatchBudget(**budget), key_groups=LETTER_GROUPS)

    return make


@pytest.fixture
def slot(store: KeyValueStore, tmp_path: Path) -> KeyedSlot:
    """A slot on each kind of store."""
    return KeyedSlot(store, tmp_path, BatchBudget(), key_groups=LETTER_GROUPS)
