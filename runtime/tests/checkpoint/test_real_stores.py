"""Checkpoints of the product's own stores: RocksDB's files and the memory store's, rescaled, incremental, relocated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtime.tests.checkpoint.miniature import Miniature, apply
from runtime.tests.checkpoint.test_rescaling import BATCHES, KEY_GROUPS, SLOTS

from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore
from statefulspark.storage.open import open_store

MEMORY = RocksDBMemory.managed(32 << 20)


def _rocksdb(path: Path) -> RocksDBStore:
    return RocksDBStore(path, RocksDBOptions(memory=MEMORY, settings=RocksDBSettings(write_buffer_bytes=1 << 20)))


KINDS: dict[str, Callable[[Path], KeyValueStore]] = {"memory": HeapStore, "rocksdb": _rocksdb}
"""How each kind is opened."""


def _job(folder: Path, kind: str) -> Miniature:
    (folder / "local").mkdir(parents=True)
    return Miniature(open_store((folder / "flights").as_uri()), folder / "local", KINDS[kind], max_parallelism=KEY_GROUPS, backend=kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(batches=st.lists(BATCHES, min_size=4, max_size=4), slots=st.tuples(SLOTS, SLOTS, SLOTS))
def test_state_survives_rescaling_twice(
    tmp_path_factory: pytest.TempPathFactory, kind: str, batches: list[list[Change]], slots: tuple[int, int, int]
) -> None:
    """From n slots to m, then to k, each time with changelogs on top of a checkpoint."""
    mini = _job(tmp_path_factory.mktemp("job"), kind)
    state: dict[bytes, bytes] = {}
    mini.start(slots[0])
    for batch, changes in enumerate(batches):
        mini.begin(batch)
        mini.run(batch, changes)
        state = apply(state, changes)
        if batch in (0, 2):
            mini.checkpoint(batch)
        else:
            mini.begin(batch + 1)
            assert mini.start(slots[(batch + 1) // 2]) == batch
            assert mini.contents() == state
    for slot in mini.slots:
        slot.store.close()


def _fill(mini: Miniature, batch: int, keys: range) -> None:
    mini.begin(batch)
    mini.run(batch, [(bytes([0, key % 8, 0, 1]) + key.to_bytes(4, "big"), b"%d" % key * 20) for key in keys])


def test_rocksdb_uploads_only_new_table_files(tmp_path: Path) -> None:
    """The second checkpoint, and the first after a restart, name the table files of the one before."""
    mini = _job(tmp_path, "rocksdb")
    mini.start(2)
    _fill(mini, 0, range(5_000))
    first = mini.checkpoint(0)
    _fill(mini, 1, range(5_000, 5_100))
    second = mini.checkpoint(1)
    for before, after in zip(first.slots, second.slots, strict=True):
        assert before.shared
        assert set(before.shared) < set(after.shared)
    mini.start(2)
    third = mini.checkpoint(1)
    assert [slot.shared for slot in third.slots] == [slot.shared for slot in second.slots]
    for slot in mini.slots:
        slot.store.close()


def test_rocksdb_names_shared_files_after_scaling_out(tmp_path: Path) -> None:
    """A slot that was cut out of an old one still shares the old one's table files."""
    mini = _job(tmp_path, "rocksdb")
    mini.start(1)
    _fill(mini, 0, range(5_000))
    first = mini.checkpoint(0)
    mini.start(2)
    second = mini.checkpoint(0)
    for part in second.slots:
        assert set(first.slots[0].shared) <= set(part.shared)
    contents = mini.contents()
    mini.start(3)
    assert mini.contents() == contents
    for slot in mini.slots:
        slot.store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_savepoint_of_a_real_store_opens_elsewhere(tmp_path: Path, kind: str) -> None:
    """Moved, with the job folder gone and another number of slots."""
    mini = _job(tmp_path / "a", kind)
    mini.start(2)
    _fill(mini, 0, range(1_000))
    mini.checkpoint(0)
    expected = mini.contents()
    target = open_store((tmp_path / "savepoints").as_uri())
    mini.savepoint(target, "savepoint-flights-1", 0)
    mini.job.delete([info.key for info in mini.job.list("")])
    (tmp_path / "savepoints" / "savepoint-flights-1").rename(tmp_path / "moved")
    for slot in mini.slots:
        slot.store.close()
    other = _job(tmp_path / "b", kind)
    other.start(3, origin=str(tmp_path / "moved"))
    assert other.contents() == expected
    for slot in other.slots:
        slot.store.close()
