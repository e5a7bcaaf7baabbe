"""The native memory of a slot is divided anew while stores are open."""

from __future__ import annotations

from pathlib import Path

from statefulspark.memory.split import MemorySplit
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

MIB = 1 << 20


def write(store: RocksDBStore, first: int, size_bytes: int) -> float:
    """Write so much in entries of 1 KiB; return the largest size that a write buffer had before it was given to the flush."""
    largest = 0
    for start in range(first, first + (size_bytes >> 10), 64):
        store.write([(b"%010d" % number, b"v" * 1014) for number in range(start, start + 64)])
        largest = max(largest, store.property_int_value("rocksdb.cur-size-active-mem-table") or 0)
        while store.property_int_value("rocksdb.num-immutable-mem-table"):
            pass  # RocksDB begins no flush while another one runs, so the buffer would grow on
    return largest


def test_cache_and_write_buffers_follow(tmp_path: Path) -> None:
    """The capacity is RocksDB's own word; the limit of write buffers shows in when they are flushed."""
    memory = RocksDBMemory(MemorySplit.of(96 * MIB, 0.5))
    store = RocksDBStore(tmp_path / "db", RocksDBOptions(memory=memory))
    assert write(store, 0, 20 * MIB) > 19 * MIB, "a limit of 32 MiB flushes nothing"
    store.flush()

    small = MemorySplit.of(96 * MIB, 0.1)
    memory.resize(small)
    assert store.property_int_value("rocksdb.block-cache-capacity") == small.cache_bytes
    assert memory.write_buffers is not None
    assert memory.write_buffers.get_buffer_size() == small.write_buffer_bytes < 7 * MIB
    assert 2 * MIB < write(store, 100_000, 20 * MIB) <= small.write_buffer_bytes, "flushed at 7/8 of the limit"

    memory.resize(MemorySplit.of(24 * MIB, 0.5))
    assert store.property_int_value("rocksdb.block-cache-capacity") == 20 * MIB
    assert len(list(store.scan(b"0", b"1"))) == 40 << 10
    assert memory.usage_bytes() <= 21 * MIB, "blocks above the new capacity were evicted"
    store.close()


def test_another_store_of_the_slot_gets_the_new_sizes(tmp_path: Path) -> None:
    """A spill that is opened after the change is checked against it."""
    memory = RocksDBMemory.managed(32 * MIB)
    memory.resize(MemorySplit.of(16 * MIB, 0.3))
    store = RocksDBStore(tmp_path / "spill", RocksDBOptions(memory=memory))
    assert store.property_int_value("rocksdb.block-cache-capacity") == int(2.7 * 16 * MIB / 3)
    store.close()
