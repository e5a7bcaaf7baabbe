"""Write buffers stay near their limit also when the instance that holds them is not the one that is written to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statefulspark.memory.split import MemorySplit
from statefulspark.state.store.base import Change
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

VALUE = bytes(1024)


@contextmanager
def _two_stores(memory: RocksDBMemory, folder: Path) -> Iterator[tuple[RocksDBStore, RocksDBStore]]:
    stores = RocksDBStore(folder / "a", RocksDBOptions(memory=memory)), RocksDBStore(folder / "b", RocksDBOptions(memory=memory))
    try:
        yield stores
    finally:
        for store in stores:
            store.close()


def test_an_instance_that_nobody_writes_to_is_flushed(tmp_path: Path) -> None:
    """A store holds write buffers above the limit and is left alone: a write to another store makes it flush."""
    memory = RocksDBMemory.managed(64 << 20)
    with _two_stores(memory, tmp_path) as (idle, busy):
        idle.write((f"{number:05d}".encode(), VALUE) for number in range(12_000))
        assert memory.write_buffers is not None
        held = memory.write_buffers.get_usage()
        memory.resize(MemorySplit.of(16 << 20))
        limit = memory.write_buffers.get_buffer_size()
        assert held > 2 * limit
        busy.write([(b"key", VALUE)])
        assert memory.write_buffers.get_usage() <= limit * 1.25
        assert not list((tmp_path / "b").glob("*.sst"))
        assert list((tmp_path / "a").glob("*.sst"))


def test_write_buffers_stay_near_their_limit(tmp_path: Path) -> None:
    """However fast two stores are written to in turns, what is held never passes the limit by more than a quarter and one write."""
    memory = RocksDBMemory.managed(16 << 20)
    with _two_stores(memory, tmp_path) as stores:
        assert memory.write_buffers is not None
        limit = memory.write_buffers.get_buffer_size()
        highest = 0
        for turn in range(20):
            stores[turn % 2].write((f"{turn:02d}{number:05d}".encode(), VALUE) for number in range(4_000))
            highest = max(highest, memory.write_buffers.get_usage())
        assert limit / 2 < highest <= limit * 1.25


def test_a_closed_store_is_forgotten(tmp_path: Path) -> None:
    """Closing a store while others go on leaves nothing that would be flushed."""
    memory = RocksDBMemory.managed(32 << 20)
    with _two_stores(memory, tmp_path) as (first, second):
        first.write([(b"key", VALUE)])
        first.close()
        memory.resize(MemorySplit.of(16 << 20))
        second.write((f"{number:05d}".encode(), VALUE) for number in range(20_000))
        assert second.get(b"00007") == VALUE


def test_large_values_are_read_in_pieces(tmp_path: Path) -> None:
    """200 values of 64 KiB: whoever looks after memory is asked every MiB or so; what is read is what was written, absent keys included."""
    store = RocksDBStore(tmp_path / "db", RocksDBOptions(memory=RocksDBMemory.managed(32 << 20)))
    written: list[Change] = [(b"k%03d" % number, bytes([number]) * (64 << 10)) for number in range(200)]
    store.write(written)
    assert store.memory.write_buffer_limit is not None
    looks: list[int] = []
    store.memory.write_buffer_limit.used = lambda: looks.append(1)
    keys = [key for key, _ in written] + [b"absent"]
    assert store.get_many(keys) == [value for _, value in written] + [None]
    assert 6 <= len(looks) <= 13
    looks.clear()
    assert store.get_many([b"absent"] * 5000) == [None] * 5000
    assert not looks
    store.close()
