"""The high-priority pool ratio keeps index and filter blocks in the cache, measured by RocksDB's own counts of cache misses."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from statefulspark.memory.split import MemorySplit
from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

_MIB = 1 << 20
_ENTRIES = 500_000
_SETTINGS = RocksDBSettings(write_buffer_bytes=2 * _MIB, target_file_bytes=4 * _MIB, level_base_bytes=16 * _MIB)
_PINNED_PER_FILE = 72 << 10
"""Index and filter blocks of a table file of 4 MiB: 0.7 MiB of all ten."""
_VALUES = random.Random(0).randbytes(_MIB)


def _key(number: int) -> bytes:
    return b"\x00\x01key%012d" % number


def _value(number: int) -> bytes:
    at = number * 7919 % (_MIB - 100)
    return _VALUES[at : at + 60]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 40 MiB whose index and filter blocks take about 0.7 MiB."""
    path = tmp_path_factory.mktemp("pool") / "db"
    store = RocksDBStore(path, RocksDBOptions(settings=_SETTINGS))
    store.write([(_key(number), _value(number)) for number in range(_ENTRIES)])
    store.flush()
    store.close()
    return path


@dataclass(frozen=True, slots=True)
class Misses:
    """Index and filter blocks, and data blocks, that were looked for in the cache and had to be read."""

    metadata: int
    data: int


class Slot:
    """A store of a slot with 16 MiB of managed memory, 13.3 MiB of them cache."""

    def __init__(self, path: Path, high_prio_pool_ratio: float) -> None:
        self.memory = RocksDBMemory.managed(16 * _MIB, 0.5, high_prio_pool_ratio)
        self.store = RocksDBStore(path, RocksDBOptions(settings=_SETTINGS, memory=self.memory, statistics=True))
        self.usage_max = 0
        self._random = random.Random(1)

    def look_up(self, times: int) -> Misses:
        before = self._counts()
        for _ in range(times):
            number = self._random.randrange(_ENTRIES)
            assert self.store.get(_key(number)) == _value(number)
        after = self._counts()
        return Misses(after.metadata - before.metadata, after.data - before.data)

    def settle(self) -> None:
        """Wait until nothing is flushed or compacted any more. What a compaction writes between two looks pins as the first one decided."""
        running = ("num-running-flushes", "num-running-compactions", "compaction-pending", "mem-table-flush-pending")
        while any(self.store.property_int_value(f"rocksdb.{name}") for name in running):
            self.store.size_bytes()  # a look, as with each sign of life
        self.store.size_bytes()

    def scan(self) -> None:
        for count, _ in enumerate(self.store.scan(b"", b"\xff")):
            if count % 1000 == 0:
                self.usage_max = max(self.usage_max, self.memory.usage_bytes())

    def _counts(self) -> Misses:
        text = self.store.statistics()
        assert text is not None
        index, filters, data = (
            int(re.findall(rf"^rocksdb\.block\.cache\.{kind}\.miss COUNT : (\d+)$", text, re.MULTILINE)[0])
            for kind in ("index", "filter", "data")
        )
        return Misses(index + filters, data)


@contextmanager
def _slot(path: Path, ratio: float) -> Iterator[Slot]:
    slot = Slot(path, ratio)
    try:
        yield slot
    finally:
        slot.store.close()


@pytest.mark.parametrize("ratio", [0.0, 0.3])
def test_index_and_filter_blocks_under_a_scan_load(written: Path, ratio: float) -> None:
    """Resident at 0.3: not one of them is read again after scans of three times the cache. At 0 the same scans have evicted them."""
    with _slot(written, ratio) as slot:
        slot.look_up(20_000)
        warm = slot.look_up(300)
        slot.scan()
        after = slot.look_up(300)
        assert after.data > 100, "the scan has evicted data blocks"
        if ratio:
            assert (warm.metadata, after.metadata) == (0, 0)
        else:
            assert after.metadata > 100
        assert slot.usage_max <= 1.02 * slot.memory.cache_bytes


def test_misses_fall_as_the_ratio_rises(tmp_path: Path) -> None:
    """Not only on and off: with room for a part of the index and filter blocks, a part stays, and no more than there is room for."""
    misses = []
    for ratio in (0.0, 0.02, 0.04, 0.3):
        with _slot(tmp_path / str(ratio), ratio) as slot:
            slot.store.write([(_key(number), _value(number)) for number in range(_ENTRIES)])
            slot.store.flush()
            slot.settle()
            slot.look_up(5_000)
            slot.scan()
            misses.append(slot.look_up(500).metadata)
            # Two files of the largest size may come between two looks; all files together pin 2.5 times the smallest part.
            assert slot.memory.pinned_bytes() <= slot.memory.high_prio_bytes + 2 * _PINNED_PER_FILE
    assert misses == sorted(misses, reverse=True)
    assert misses[0] > misses[1] > misses[-1] == 0


@pytest.mark.parametrize("smaller", [False, True])
def test_a_part_that_is_made_smaller_while_the_store_is_open(tmp_path: Path, smaller: bool) -> None:
    """What is written from then on does not pin; what was pinned goes with its files."""
    with _slot(tmp_path / "db", 0.3) as slot:
        slot.store.write([(_key(number), _value(number)) for number in range(_ENTRIES // 4)])
        slot.store.flush()
        slot.store.size_bytes()
        before = slot.memory.pinned_bytes()
        if smaller:
            slot.memory.resize(MemorySplit.of(16 * _MIB, 0.5, 0.001))
        slot.store.write([(_key(number), _value(number)) for number in range(_ENTRIES // 4, _ENTRIES)])
        slot.store.flush()
        slot.store.size_bytes()
        after = slot.memory.pinned_bytes()
    if smaller:
        assert after < 1.1 * before
    else:
        assert after > 2 * before


def test_the_cache_keeps_to_its_capacity(tmp_path: Path) -> None:
    """Blocks, pinned ones and write buffers together, under random writes and reads; an LRU cache, cut into shards, goes 5 % above it."""
    memory = RocksDBMemory.managed(16 * _MIB, 0.55, 0.1)
    store = RocksDBStore(tmp_path / "db", RocksDBOptions(settings=replace(_SETTINGS, write_buffer_bytes=4 * _MIB), memory=memory))
    picks = random.Random(2)
    usage_max = 0
    for turn in range(150):
        store.write(
            [(_key(picks.randrange(400_000)), _value(turn * 1000 + number) * (7 if number % 50 else 100)) for number in range(1000)]
        )
        store.get_many([_key(picks.randrange(200_000)) for _ in range(300)])
        usage_max = max(usage_max, memory.usage_bytes())
    store.close()
    assert 0.9 * memory.cache_bytes < usage_max < 1.02 * memory.cache_bytes
