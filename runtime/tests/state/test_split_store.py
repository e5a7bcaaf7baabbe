"""SplitStore: timers on the heap beside state in RocksDB; snapshots of either timer service open with the other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.errors import CorruptDataError, IncompatibleFormatError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.entries import HEAP_TIMERS_FILE
from statefulspark.state.encoding.layout import store_key, timer_store_key
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.open_store import open_store
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.store.split_store import SplitStore
from statefulspark.testing.key_value_store import KeyValueStoreContract

GROUPS = KeyGroupRange(0, 3)
TIMERS, OTHER_TIMERS, VALUES = 1, 2, 3
ALL = (b"", b"\xff\xff")


def changes(number: int = 40) -> list[Change]:
    """Timers of two kinds and values, in every key group."""
    timers = [(timer_store_key(at % 4, 1 + at % 2, at * 1000, b"k%d" % at), b"\1") for at in range(number)]
    return [*timers, *((store_key(at % 4, VALUES, b"k%d" % at), b"value") for at in range(number))]


def timer_ids(store: KeyValueStore) -> set[int]:
    return {int.from_bytes(key[2:4], "big") for key, _ in store.scan(*ALL)}


class TestSplitStore(KeyValueStoreContract):
    """With a route that the short keys of the contract take."""

    def open_store(self, path: Path) -> KeyValueStore:
        store = SplitStore(path)
        store._on_heap |= {b"\0\1", b"a", b"", b"\0\5", b"\0\6"}
        return store


@pytest.fixture
def split(tmp_path: Path) -> SplitStore:
    """Timers of the first kind are declared."""
    store = SplitStore(tmp_path / "store")
    store.declare_timers(TIMERS, GROUPS)
    store.write(changes())
    return store


def test_each_state_lies_in_one_part(split: SplitStore) -> None:
    """Reads, scans of one state and of all, and deletes see both parts as one ordered store."""
    assert timer_ids(split.heap) == {TIMERS}
    assert timer_ids(split.rocksdb) == {OTHER_TIMERS, VALUES}
    assert list(split.scan(*ALL)) == sorted((key, value) for key, value in changes() if value is not None)
    keys = [key for key, _ in changes()]
    assert split.get_many(keys) == [split.get(key) for key in keys] == [value for _, value in changes()]
    split.delete_range(b"\0\1", b"\0\3")
    assert {key[1] for key, _ in split.scan(*ALL)} == {0, 3}


def test_declared_timers_move_to_the_heap_once(split: SplitStore) -> None:
    """What an older checkpoint, a replayed changelog or another slot has put into RocksDB."""
    split.declare_timers(OTHER_TIMERS, GROUPS)
    assert timer_ids(split.heap) == {TIMERS, OTHER_TIMERS}
    assert timer_ids(split.rocksdb) == {VALUES}
    assert list(split.scan(*ALL)) == sorted((key, value) for key, value in changes() if value is not None)
    split.declare_timers(OTHER_TIMERS, GROUPS)
    split.write([(key, None) for key, _ in changes()])
    assert list(split.scan(*ALL)) == []


@pytest.mark.parametrize("heap_timers", [True, False])
def test_a_snapshot_opens_with_either_timer_service(split: SplitStore, tmp_path: Path, heap_timers: bool) -> None:
    """It is of the moment at which it began, in both parts, and the file with timers is gone once it is open."""
    snapshot = split.begin_snapshot(tmp_path / "snapshot")
    split.write([(key, None) for key, _ in changes()])
    split.close()
    snapshot.write()
    assert timer_ids(HeapStore(tmp_path / "snapshot", file_name=HEAP_TIMERS_FILE)) == {TIMERS}
    opened = open_store("rocksdb", tmp_path / "snapshot", heap_timers=heap_timers)
    assert list(opened.scan(*ALL)) == sorted((key, value) for key, value in changes() if value is not None)
    assert not (tmp_path / "snapshot" / HEAP_TIMERS_FILE).exists()
    if isinstance(opened, SplitStore):
        assert timer_ids(opened.heap) == {TIMERS}, "ids come from the file"
    else:
        assert isinstance(opened, RocksDBStore)
    opened.begin_snapshot(tmp_path / "again").write()
    assert (tmp_path / "again" / HEAP_TIMERS_FILE).exists() == heap_timers
    opened.close()


def test_a_store_without_timers_writes_no_file(tmp_path: Path) -> None:
    """So releases that do not know the file read the checkpoint."""
    store = SplitStore(tmp_path / "store")
    store.declare_timers(TIMERS, GROUPS)
    store.write(changes(0))
    store.begin_snapshot(tmp_path / "snapshot").write()
    assert not (tmp_path / "snapshot" / HEAP_TIMERS_FILE).exists()
    store.close()


@pytest.mark.parametrize("heap_timers", [True, False])
@pytest.mark.parametrize(
    ("place", "byte", "error"),
    [(4, 2, IncompatibleFormatError), (0, 0, CorruptDataError), (-1, 0, CorruptDataError), (20, 0, CorruptDataError)],
)
def test_a_damaged_file_is_refused(
    split: SplitStore, tmp_path: Path, heap_timers: bool, place: int, byte: int, error: type[Exception]
) -> None:
    """With its name; a newer version as such. The store can be opened again with a good file."""
    split.begin_snapshot(tmp_path / "snapshot").write()
    file = tmp_path / "snapshot" / HEAP_TIMERS_FILE
    good = file.read_bytes()
    damaged = bytearray(good)
    damaged[place] = byte if damaged[place] != byte else 255
    file.write_bytes(damaged)
    with pytest.raises(error, match=HEAP_TIMERS_FILE):
        open_store("rocksdb", tmp_path / "snapshot", heap_timers=heap_timers)
    file.write_bytes(good)
    opened = open_store("rocksdb", tmp_path / "snapshot", heap_timers=heap_timers)
    assert timer_ids(opened) == {TIMERS, OTHER_TIMERS, VALUES}
    opened.close()
