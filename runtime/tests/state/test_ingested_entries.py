"""Entries that a store of RocksDB takes in as table files: as if they had been written."""

from __future__ import annotations

import errno
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples

from statefulspark.errors import ClosedError, CorruptDataError, UnavailableError
from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.state.encoding.layout import key_group_range_bounds
from statefulspark.state.store.open_store import add_range, open_store
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

_END = b"\xff" * 8
_SMALL_FILES = RocksDBOptions(settings=RocksDBSettings(target_file_bytes=64 << 10))
_KEY = st.tuples(st.integers(0, 7), st.binary(max_size=6)).map(lambda part: bytes([0, part[0]]) + part[1])
_VALUE = st.one_of(st.binary(max_size=20), st.integers(0, 200_000).map(lambda size: b"v" * size))


def _all(store: RocksDBStore) -> list[tuple[bytes, bytes]]:
    return list(store.scan(b"", _END))


@settings(max_examples=examples(25, 150))
@given(entries=st.dictionaries(_KEY, _VALUE, max_size=30), cut=st.integers(0, 8), after=st.dictionaries(_KEY, _VALUE, max_size=5))
def test_entries_are_as_if_they_had_been_written(entries: dict[bytes, bytes], cut: int, after: dict[bytes, bytes]) -> None:
    """Beside key groups that the store has, over such that were cut off, with several files; before and after a snapshot, and under later writes."""
    with tempfile.TemporaryDirectory() as name:
        store = RocksDBStore(Path(name) / "store", _SMALL_FILES)
        store.write([(bytes([0, group, number]), b"old") for group in range(8) for number in range(3)])
        store.flush()
        store.delete_range(*key_group_range_bounds(cut, 8))
        expected = {bytes([0, group, number]): b"old" for group in range(cut) for number in range(3)}
        taken = {key: value for key, value in entries.items() if key[1] >= cut}
        store.ingest(iter(sorted(taken.items())))
        expected |= taken
        assert _all(store) == sorted(expected.items())
        assert not (Path(name) / "store-ingested").exists()
        store.write(list(after.items()))
        expected |= after
        assert store.get_many(sorted(expected)) == [expected[key] for key in sorted(expected)]
        store.begin_snapshot(Path(name) / "snapshot").write()
        store.close()
        for folder in ("store", "snapshot"):
            if folder == "snapshot":
                again = RocksDBStore(Path(name) / folder, _SMALL_FILES)
                assert _all(again) == sorted(expected.items())
                again.close()


def test_files_have_the_size_of_rocksdbs_own(tmp_path: Path) -> None:
    """And lie on the last level, where nothing has to merge them."""
    store = RocksDBStore(tmp_path / "store", _SMALL_FILES)
    chance = random.Random(1)
    store.ingest(iter((b"%08d" % number, chance.randbytes(1_000)) for number in range(2_000)))
    database = store.native()
    assert database is not None
    files = database.live_files()
    assert len(files) > 5
    assert {file["level"] for file in files} == {6}
    store.close()


def test_a_source_that_is_damaged_leaves_nothing(tmp_path: Path) -> None:
    def entries() -> Iterator[tuple[bytes, bytes]]:
        yield b"a", b"1"
        raise CorruptDataError("the state store is damaged", path="old")

    store = RocksDBStore(tmp_path / "store")
    with pytest.raises(CorruptDataError, match="old"):
        store.ingest(entries())
    assert store.damage is None, "this store is sound"
    assert _all(store) == []
    store.ingest(iter([(b"a", b"1")]))
    assert _all(store) == [(b"a", b"1")]
    store.close()
    with pytest.raises(ClosedError):
        store.ingest(iter([(b"b", b"1")]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_disk_that_refuses_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RocksDBStore(tmp_path / "store")

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "there")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", full)
        with pytest.raises(UnavailableError, match="there: No space left on device"):
            store.ingest(iter([(b"a", b"1")]))
    assert _all(store) == []
    store.close()


@pytest.mark.parametrize("kind", ["rocksdb", "memory"])
@pytest.mark.parametrize("heap_timers", [False, True])
def test_every_kind_of_store_takes_a_range(tmp_path: Path, kind: str, heap_timers: bool) -> None:
    store = open_store(kind, tmp_path / "store", heap_timers=heap_timers)
    entries = [(bytes([0, 1, 0, 1, number]), b"1") for number in range(9)]
    add_range(store, iter(entries))
    add_range(store, iter(()))
    assert list(store.scan(b"", _END)) == entries
    store.close()
