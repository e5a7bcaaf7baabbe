"""Options and the shared memory are in effect whatever way a RocksDB store came about: opened again, restored, cut out, filled from others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runtime.tests.checkpoint.miniature import Miniature

from statefulspark.config.rocksdb.options import PredefinedOptions, choose
from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.state.store.open_store import open_spill
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore
from statefulspark.storage.open import open_store

_MIB = 1 << 20
WRITTEN_BY = RocksDBOptions(settings=RocksDBSettings(bloom_filter=False, partitioned_index_filters=False, block_bytes=4 << 10))
"""Whoever took the checkpoint had none of what is asked for now."""

NAMED = {
    "block.blocksize": "8kb",
    "bloom-filter.bits-per-key": "14",
    "compression.per.level": "ZSTD_COMPRESSION",
    "writebuffer.size": "1mb",
    "compaction.level.target-file-size-base": "2mb",
    "log.level": "WARN_LEVEL",
}
WANTED = {
    "block_size=8192",
    "filter_policy=bloomfilter:14:false",
    "partition_filters=true",
    "index_type=kTwoLevelIndexSearch",
    "compression=kZSTD",
    "write_buffer_size=1048576",
    "target_file_size_base=2097152",
    "info_log_level=WARN_LEVEL",
}
"""RocksDB's own lines."""


class Job:
    """A miniature job whose stores are opened with options that can be exchanged; all slots share one memory here."""

    def __init__(self, folder: Path) -> None:
        (folder / "local").mkdir()
        self.options = WRITTEN_BY
        self.mini = Miniature(
            open_store((folder / "storage").as_uri()),
            folder / "local",
            lambda path: RocksDBStore(path, self.options),
            max_parallelism=8,
            backend="rocksdb",
        )

    def stores(self) -> list[RocksDBStore]:
        return [slot.store for slot in self.mini.slots if isinstance(slot.store, RocksDBStore)]

    def fill(self, batch: int, keys: range) -> None:
        self.mini.begin(batch)
        self.mini.run(batch, [(bytes([0, key % 8, 0, 1]) + key.to_bytes(4, "big"), b"%08d" % key * 4) for key in keys])

    def close(self) -> None:
        for store in self.stores():
            store.close()


def _asked(memory: RocksDBMemory) -> RocksDBOptions:
    return RocksDBOptions(settings=choose(PredefinedOptions.DEFAULT, NAMED).settings, memory=memory, statistics=True)


def _in_effect(store: RocksDBStore, memory: RocksDBMemory) -> None:
    """Check the options file, the cache, and that filters and blocks of that kind are used by what is written now."""
    newest = max(store.path.glob("OPTIONS-*"), key=lambda file: int(file.name.removeprefix("OPTIONS-")))
    assert {line.strip() for line in newest.read_text().splitlines()} >= WANTED
    assert store.property_int_value("rocksdb.block-cache-capacity") == memory.cache_bytes

    before = memory.usage_bytes()
    store.write([(bytes([0, 7, 0, 2]) + number.to_bytes(4, "big"), b"v" * 200) for number in range(0, 6_000, 2)])
    assert memory.usage_bytes() >= before + 512 * 1024, "write buffers are charged to the shared cache"
    store.flush()
    assert store.get(bytes([0, 7, 0, 2]) + (4_001).to_bytes(4, "big")) is None
    assert _counted(store, "rocksdb.bloom.filter.useful") > 0
    missed = _counted(store, "rocksdb.block.cache.data.miss")
    assert store.get(bytes([0, 7, 0, 2]) + (4_000).to_bytes(4, "big")) is not None
    assert _counted(store, "rocksdb.block.cache.data.miss") == missed + 1
    assert store.get(bytes([0, 7, 0, 2]) + (4_000).to_bytes(4, "big")) is not None
    assert _counted(store, "rocksdb.block.cache.data.miss") == missed + 1, "the block is in the cache"


def _counted(store: RocksDBStore, ticker: str) -> int:
    found = re.search(rf"^{re.escape(ticker)} COUNT : (\d+)$", store.statistics() or "", re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Two slots with a checkpoint of batch 0."""
    made = Job(tmp_path)
    made.mini.start(2)
    made.fill(0, range(4_000))
    made.mini.checkpoint(0)
    return made


def test_opened_again(tmp_path: Path) -> None:
    """Files of other options in the same folder."""
    RocksDBStore(tmp_path / "db", WRITTEN_BY).close()
    memory = RocksDBMemory.managed(32 * _MIB)
    for _ in range(2):
        store = RocksDBStore(tmp_path / "db", _asked(memory))
        _in_effect(store, memory)
        store.delete_range(b"", b"\xff")
        store.flush()
        store.close()


@pytest.mark.parametrize("parallelism", [2, 3, 1], ids=["restored", "cut", "merged"])
def test_restored_from_a_checkpoint(job: Job, parallelism: int) -> None:
    """The slots' stores after a restart, after a rescale out that cuts files, and in that copies from other stores; then their spills."""
    before = job.mini.contents()
    memory = RocksDBMemory.managed(64 * _MIB)
    job.options = _asked(memory)
    job.mini.start(parallelism)
    assert job.mini.contents() == before
    for store in job.stores():
        assert store.memory is memory
        _in_effect(store, memory)
        spill = open_spill(store.path.parent / "spill", store)
        assert spill.memory is memory
        assert spill.property_int_value("rocksdb.block-cache-capacity") == memory.cache_bytes
        spill.destroy()
    job.close()


def test_reserved_part_is_that_of_all_stores(job: Job) -> None:
    """Two stores share what may be pinned: what one has pinned, the other has not, and closing it gives it back."""
    memory = RocksDBMemory.managed(32 * _MIB, 0.5, 0.001)
    job.options = _asked(memory)
    job.mini.start(2)
    first, second = job.stores()
    for batch in range(1, 5):
        job.fill(batch, range(batch * 5_000, batch * 5_000 + 5_000))
        first.flush()
        second.flush()
    for store in (first, second):
        store.size_bytes()
    pinned = memory.pinned_bytes()
    assert memory.high_prio_bytes / 2 < pinned < 1.5 * memory.high_prio_bytes
    first.close()
    assert memory.pinnable_bytes("another") > memory.high_prio_bytes - pinned
    second.close()
    assert memory.pinned_bytes() == 0
