"""The driver dies between any two storage operations, or in the middle of one: nothing committed is lost, nothing half-done is used."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature, apply
from runtime.tests.depth import examples

from statefulspark.checkpoint.lineage.lineage import Lineage
from statefulspark.checkpoint.write.retention import Retention
from statefulspark.errors import FencedError, UnavailableError
from statefulspark.state.store.base import Change
from statefulspark.storage.base import ObjectInfo, ObjectStore
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.hashes import HashAlgorithm
from statefulspark.storage.open import open_store

BATCHES: list[list[Change]] = [
    [(bytes([0, (batch * 3 + step) % 8, 0, 1]), b"%d" % batch if (batch + step) % 4 else None) for step in range(4)] for batch in range(5)
]
STATES: list[dict[bytes, bytes]] = [{}]
for _changes in BATCHES:
    STATES.append(apply(STATES[-1], _changes))


class MortalStore:
    """Passes on a number of writing operations; the next one happens or not, and after it nothing works any more."""

    def __init__(self, inner: ObjectStore, operations: int, *, last_one_happens: bool) -> None:
        self._inner = inner
        self._left = operations
        self._last_one_happens = last_one_happens
        self._lock = Lock()

    @property
    def dead(self) -> bool:
        return self._left < 0

    @property
    def url(self) -> str:
        return self._inner.url

    def _live(self) -> bool:
        """Count down; the operation at zero may still happen, unseen by the caller."""
        with self._lock:
            self._left -= 1
            if self._left >= 0:
                return True
            if self._left == -1 and self._last_one_happens:
                return False
            raise UnavailableError("dead")

    def put(self, key: str, data: bytes) -> None:
        alive = self._live()
        self._inner.put(key, data)
        self._die_unless(alive)

    def put_if_absent(self, key: str, data: bytes) -> None:
        alive = self._live()
        self._inner.put_if_absent(key, data)
        self._die_unless(alive)

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        alive = self._live()
        self._inner.put_file(key, path, cancellation)
        self._die_unless(alive)

    def copy(self, source: str, target: str) -> None:
        alive = self._live()
        self._inner.copy(source, target)
        self._die_unless(alive)

    def delete(self, keys: Iterable[str]) -> None:
        # A deletion of many objects can end anywhere: each counts as one operation.
        for key in keys:
            alive = self._live()
            self._inner.delete([key])
            self._die_unless(alive)

    def get(self, key: str) -> bytes:
        self._die_unless(not self.dead)
        return self._inner.get(key)

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> str | None:
        self._die_unless(not self.dead)
        return self._inner.get_file(key, path, algorithm)

    def head(self, key: str) -> ObjectInfo | None:
        self._die_unless(not self.dead)
        return self._inner.head(key)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        self._die_unless(not self.dead)
        return self._inner.list(prefix)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        self._die_unless(not self.dead)
        return self._inner.list_folders(prefix)

    @staticmethod
    def _die_unless(alive: bool) -> None:
        if not alive:
            raise UnavailableError("dead")


def _new_folder(folder: Path) -> Path:
    """A driver's local disk, which dies with it."""
    local = folder / f"local-{len(list(folder.iterdir()))}"
    local.mkdir()
    return local


def _live_through(mini: Miniature, first: int) -> None:
    """Run the batches with a checkpoint and retention after every second one, then let a last batch begin."""
    lineage = mini.lineage
    assert isinstance(lineage, Lineage)
    for batch in range(first, len(BATCHES)):
        mini.begin(batch)
        mini.run(batch, BATCHES[batch])
        if batch % 2:
            mini.checkpoint(batch)
            Retention(mini.job, retained=1, orphan_age_s=0.0).run(lineage, now_s=2e9, check_fence=mini.check_fence)
    mini.begin(len(BATCHES))


@settings(max_examples=examples(12, 60))
@given(operations=st.integers(0, 46), last_one_happens=st.booleans(), second=st.integers(0, 46))
@example(operations=10_000, last_one_happens=True, second=10_000)
def test_two_drivers_die_and_the_third_ends_right(
    tmp_path_factory: pytest.TempPathFactory, operations: int, last_one_happens: bool, second: int
) -> None:
    """Each goes on from the last committed batch: never before what a record proved committed, never after what was run."""
    folder = tmp_path_factory.mktemp("job")
    store = open_store((folder / "flights").as_uri())
    begun = -1
    for left, slots in ((operations, 2), (second, 3), (10_000, 1)):
        mortal = MortalStore(store, left, last_one_happens=last_one_happens)
        mini = Miniature(mortal, _new_folder(folder), DictStore)
        try:
            committed = mini.start(slots)
            assert committed >= begun - 1
            assert mini.contents() == STATES[committed + 1]
            lineage = mini.lineage
            assert lineage is not None
            begun = max(begun, lineage.uncommitted_batch if lineage.uncommitted_batch is not None else committed)
            _live_through(mini, committed + 1)
        except UnavailableError:
            continue
    final = Miniature(store, _new_folder(folder), DictStore)
    assert final.start(2) == len(BATCHES) - 1
    assert final.contents() == STATES[-1]


def test_a_driver_that_was_replaced_stops_at_its_next_batch(tmp_path: Path) -> None:
    """And what it writes nevertheless is no part of what the new one stands on."""
    store = open_store((tmp_path / "flights").as_uri())
    old = Miniature(store, _new_folder(tmp_path), DictStore)
    old.start(1)
    old.begin(0)
    old.run(0, BATCHES[0])
    new = Miniature(store, _new_folder(tmp_path), DictStore)
    assert new.start(1) == -1
    with pytest.raises(FencedError):
        old.begin(1)
    new.begin(0)
    new.run(0, BATCHES[1])
    new.begin(1)
    assert new.start(2) == 0
    assert new.contents() == apply({}, BATCHES[1])
