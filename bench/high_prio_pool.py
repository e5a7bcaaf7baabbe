"""What highPrioPoolRatio does: index and filter blocks, and data blocks, read per 1,000 look-ups while scans go over the state.

2,000,000 entries of 100 bytes in RocksDB with 32 MiB of managed memory. Each round scans a tenth of the state, twice what the cache
holds, and looks up 1,000 keys at random. Blocks are counted by RocksDB itself. Each ratio writes its state anew, so that files pin as they would
in a job. The last line is rocksdict's LRU cache, whose own pool has the fixed ratio 0.5.

    .venv/bin/python bench/high_prio_pool.py [--entries 2000000] [--rounds 10]
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import thread_time

from rich.console import Console
from rich.table import Table
from rocksdict import Cache, WriteBufferManager

from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

MIB = 1 << 20
MANAGED_BYTES = 32 * MIB
RATIOS = (0.0, 0.025, 0.05, 0.1, 0.3)
LOOK_UPS = 1_000
VALUES = random.Random(0).randbytes(MIB)
SETTINGS = RocksDBSettings(target_file_bytes=8 * MIB, level_base_bytes=64 * MIB)


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one ratio."""

    reserved_bytes: int
    pinned_bytes: int
    metadata_reads: float
    data_reads: float
    look_up_us: float
    usage_max: float


def key(number: int) -> bytes:
    """A store key: key group, state id, key."""
    return (number * 128 // 2**21).to_bytes(2, "big") + b"\x00\x01" + number.to_bytes(8, "big")


def counted(store: RocksDBStore) -> tuple[int, int]:
    """Index and filter blocks, and data blocks, that were not in the cache."""
    text = store.statistics() or ""
    index, filters, data = (
        int(re.findall(rf"^rocksdb\.block\.cache\.{kind}\.miss COUNT : (\d+)$", text, re.MULTILINE)[0])
        for kind in ("index", "filter", "data")
    )
    return index + filters, data


def measure(folder: Path, memory: RocksDBMemory, entries: int, rounds: int) -> Measured:
    """Write the state, then scan and look up in turns."""
    store = RocksDBStore(folder / "db", RocksDBOptions(settings=SETTINGS, memory=memory, statistics=True))
    store.write((key(number), VALUES[(at := number * 7919 % (MIB - 100)) : at + 100]) for number in range(entries))
    store.flush()
    picks = random.Random(1)
    metadata = data = 0
    seconds = usage_max = 0.0
    for turn in range(rounds + 1):
        start = picks.randrange(entries * 9 // 10)
        for number, _ in enumerate(store.scan(key(start), key(start + entries // 10))):
            if number % 1000 == 0:
                usage_max = max(usage_max, memory.usage_bytes())
        before, began = counted(store), thread_time()
        for _ in range(LOOK_UPS):
            store.get(key(picks.randrange(entries)))
        if turn:  # the first round fills the cache
            seconds += thread_time() - began
            after = counted(store)
            metadata, data = metadata + after[0] - before[0], data + after[1] - before[1]
    pinned = memory.pinned_bytes()
    store.destroy()
    return Measured(
        memory.high_prio_bytes, pinned, metadata / rounds, data / rounds, seconds * 1e6 / rounds / LOOK_UPS, usage_max / memory.cache_bytes
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    table = Table("ratio", "reserved MiB", "pinned MiB", "index and filter reads", "data reads", "CPU us per look-up", "peak of cache")
    for ratio in (*RATIOS, None):
        memory = RocksDBMemory.managed(MANAGED_BYTES, 0.5, ratio or 0.0)
        if ratio is None:
            memory.cache = Cache(memory.cache_bytes)
            memory.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(MANAGED_BYTES // 3, False, memory.cache)
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder), memory, arguments.entries, arguments.rounds)
        table.add_row(
            "LRU" if ratio is None else f"{ratio:g}",
            f"{found.reserved_bytes / MIB:.2f}",
            f"{found.pinned_bytes / MIB:.2f}",
            f"{found.metadata_reads:.0f}",
            f"{found.data_reads:.0f}",
            f"{found.look_up_us:.1f}",
            f"{found.usage_max:.1%}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
