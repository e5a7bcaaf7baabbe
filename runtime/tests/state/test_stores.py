"""The stores keep the contract, and each its own promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from statefulspark.errors import (
    ClosedError,
    ConflictError,
    CorruptDataError,
    IncompatibleFormatError,
    InternalError,
    InvalidInputError,
    UnavailableError,
)
from statefulspark.state.encoding.entries import read_entries, write_entries
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.open_store import open_spill, open_store
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore
from statefulspark.testing.key_value_store import KeyValueStoreContract

_MIB = 1 << 20


class TestHeapStore(KeyValueStoreContract):
    def open_store(self, path: Path) -> KeyValueStore:
        return HeapStore(path)


class TestRocksDBStore(KeyValueStoreContract):
    def open_store(self, path: Path) -> KeyValueStore:
        return RocksDBStore(path)


@pytest.mark.parametrize(("kind", "expected"), [("rocksdb", RocksDBStore), ("memory", HeapStore), ("filesystem", HeapStore)])
def test_open_store_knows_the_kinds(kind: str, expected: type, tmp_path: Path) -> None:
    """Each kind of the manifest opens its store."""
    store = open_store(kind, tmp_path / "store")
    assert isinstance(store, expected)
    store.close()


def test_open_store_refuses_other_kinds(tmp_path: Path) -> None:
    """An unknown kind is named with the remedy."""
    with pytest.raises(InvalidInputError, match=r"unknown kind 'forst'.*Use rocksdb"):
        open_store("forst", tmp_path)


def test_rocksdb_applies_options_to_existing_files(tmp_path: Path) -> None:
    """Reopened files use the shared block cache of the one who opens them, not that of who wrote them."""
    RocksDBStore(tmp_path / "db", RocksDBOptions(memory=RocksDBMemory.managed(16 * _MIB))).close()
    memory = RocksDBMemory.managed(48 * _MIB)
    store = RocksDBStore(tmp_path / "db", RocksDBOptions(memory=memory))
    store.write([(number.to_bytes(4, "big"), b"v" * 1000) for number in range(5000)])
    assert memory.usage_bytes() > 4 * _MIB, "write buffers are charged to the shared cache"
    store.close()


def test_rocksdb_cuts_filters_and_indexes_into_small_blocks(tmp_path: Path) -> None:
    """The filter of one large file is larger than a shard of the cache: in one block it would be read from disk for every look-up."""
    store = RocksDBStore(tmp_path / "db")
    (options,) = [path.read_text() for path in sorted((tmp_path / "db").glob("OPTIONS-*"))[-1:]]
    store.close()
    for expected in ("partition_filters=true", "index_type=kTwoLevelIndexSearch", "cache_index_and_filter_blocks=true"):
        assert expected in options


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        ("IO error: No space left on device: While appending to file: /x/1.sst", UnavailableError, "cannot be written.*No space left"),
        ("IO error: While fsync: /x/1.sst: Input/output error", UnavailableError, "cannot be written.*Input/output error"),
        ("Corruption: block checksum mismatch", CorruptDataError, "damaged"),
        ("Invalid argument: something", InternalError, "rejected"),
    ],
)
def test_rocksdb_errors_are_told_apart_by_text(text: str, expected: type[Exception], message: str, tmp_path: Path) -> None:
    """Rocksdict raises plain exceptions, so RocksDB's texts decide; those that cannot be provoked here are pinned."""

    class Failing:
        def get(self, key: bytes) -> bytes:
            raise Exception(text)  # noqa: TRY002  # what rocksdict raises

        def write(self, *_arguments: object) -> None:
            raise Exception(text)  # noqa: TRY002  # what rocksdict raises

        def property_int_value(self, _name: str) -> int:
            return 0

        def close(self) -> None:
            pass

    store = RocksDBStore(tmp_path / "db")
    store.close()
    store._db = cast("Any", Failing())
    with pytest.raises(expected, match=message):
        store.get(b"a")
    with pytest.raises(expected, match=message):
        store.write([(b"a", b"1")])


def test_rocksdb_deletes_keys_in_order(tmp_path: Path) -> None:
    """More than one write takes; the others, files and buffer alike, stay. Keys that are not there are fine, and no keys at all."""
    keys = [number.to_bytes(4, "big") for number in range(10_000)]
    store = RocksDBStore(tmp_path / "db")
    store.write([(key, b"v") for key in keys[:6000]])
    store.flush()
    store.write([(key, b"w") for key in keys[6000:]])
    store.delete_in_order(keys[::2])
    store.delete_in_order([b"", *keys[:3], b"x"])
    store.delete_in_order([])
    assert [key for key, _ in store.scan(b"", b"\xff")] == keys[3::2]
    store.close()
    with pytest.raises(ClosedError):
        store.delete_in_order([b"x"])


def test_spill_shares_the_slots_memory(tmp_path: Path) -> None:
    """A spill beside RocksDB takes its native memory from the slot's budget, and leaves no files behind."""
    store = RocksDBStore(tmp_path / "db", RocksDBOptions(memory=RocksDBMemory.managed(16 * _MIB)))
    spill = open_spill(tmp_path / "spill", store)
    assert spill.options.memory is store.options.memory
    spill.write([(b"a", b"1")])
    spill.destroy()
    assert not (tmp_path / "spill").exists()
    again = open_spill(tmp_path / "spill", HeapStore())
    assert again.get(b"a") is None
    again.destroy()
    store.close()


def test_rocksdb_directory_belongs_to_one(tmp_path: Path) -> None:
    """Opening a directory twice is a conflict."""
    store = RocksDBStore(tmp_path / "db")
    with pytest.raises(ConflictError, match="already open"):
        RocksDBStore(tmp_path / "db")
    store.close()


def test_rocksdb_snapshot_links_files(tmp_path: Path) -> None:
    """A snapshot shares its files with the store, has no write-ahead log, and two snapshots share unchanged files."""
    store = RocksDBStore(tmp_path / "db")
    store.write([(number.to_bytes(4, "big"), b"v" * 100) for number in range(1000)])
    store.begin_snapshot(tmp_path / "one").write()
    store.begin_snapshot(tmp_path / "two").write()
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert not [name for name in names if name.endswith(".log")]
    files = [name for name in names if name.endswith(".sst")]
    assert files
    for name in files:
        assert (tmp_path / "one" / name).stat().st_ino == (tmp_path / "two" / name).stat().st_ino
    store.close()


def test_rocksdb_damaged_file_is_corrupt_data(tmp_path: Path) -> None:
    """A damaged data file is refused as such, when it is opened or when it is read."""
    store = RocksDBStore(tmp_path / "db")
    store.write([(number.to_bytes(4, "big"), b"v" * 100) for number in range(1000)])
    store.flush()
    store.close()
    for path in (tmp_path / "db").glob("*.sst"):
        path.write_bytes(bytes(byte ^ 0x55 for byte in path.read_bytes()))
    with pytest.raises(CorruptDataError):
        list(RocksDBStore(tmp_path / "db").scan(b"", b"\xff"))


def test_rocksdb_missing_file_is_corrupt_data(tmp_path: Path) -> None:
    """A missing data file is refused when the store is opened."""
    store = RocksDBStore(tmp_path / "db")
    store.write([(b"a", b"1")])
    store.flush()
    store.close()
    for path in (tmp_path / "db").glob("*.sst"):
        path.unlink()
    with pytest.raises(CorruptDataError):
        RocksDBStore(tmp_path / "db")


class TestEntriesFile:
    ENTRIES = ((b"", b"1"), (b"a", b""), (b"b", b"x" * 1000))

    def test_round_trip(self, tmp_path: Path) -> None:
        """What is written is read, and counted."""
        assert write_entries(tmp_path / "entries", self.ENTRIES) == 3
        assert list(read_entries(tmp_path / "entries")) == list(self.ENTRIES)

    def test_every_damaged_byte_is_noticed(self, tmp_path: Path) -> None:
        """No single damaged byte goes through."""
        path = tmp_path / "entries"
        write_entries(path, self.ENTRIES[:2])
        good = path.read_bytes()
        for position in range(len(good)):
            path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
            with pytest.raises(CorruptDataError):
                list(read_entries(path))

    def test_every_cut_is_noticed(self, tmp_path: Path) -> None:
        """A file cut anywhere, or with something appended, is refused."""
        path = tmp_path / "entries"
        write_entries(path, self.ENTRIES[:2])
        good = path.read_bytes()
        for length in range(len(good)):
            path.write_bytes(good[:length])
            with pytest.raises(CorruptDataError):
                list(read_entries(path))
        path.write_bytes(good + b"\0")
        with pytest.raises(CorruptDataError):
            list(read_entries(path))

    def test_unknown_version_is_refused(self, tmp_path: Path) -> None:
        """A newer version is refused as such."""
        path = tmp_path / "entries"
        write_entries(path, self.ENTRIES)
        good = path.read_bytes()
        path.write_bytes(good[:4] + b"\x02" + good[5:])
        with pytest.raises(IncompatibleFormatError, match="unknown version"):
            list(read_entries(path))
