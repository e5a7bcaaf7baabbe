"""Why our defaults of RocksDB options differ from Flink's: ours, ours with one option as in Flink, and all as in Flink. And universal compaction.

1,000,000 entries with 150-byte values that compress to about half, written in random order, with 32 MiB of managed memory; then look-ups of
1,024 keys at a time as a batch makes them, keys that are there and keys that are not, and a scan. Microseconds are CPU time of the calling
thread, which other work on the machine disturbs little.

    .venv/bin/python bench/rocksdb_defaults.py [--entries 1000000]
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from time import thread_time

from rich.console import Console
from rich.table import Table

from statefulspark.config.rocksdb.options import PredefinedOptions, choose
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

MIB = 1 << 20
AT_ONCE = 1024
LOOK_UPS = 60 * AT_ONCE
FLINK = {
    "block.blocksize": "4kb",
    "compression.per.level": "SNAPPY_COMPRESSION",
    "use-bloom-filter": "false",
    "memory.partitioned-index-filters": "false",
    "compaction.level.use-dynamic-size": "false",
}


def key(number: int) -> bytes:
    """A store key; even numbers are written."""
    return (number % 128).to_bytes(2, "big") + b"\x00\x01" + number.to_bytes(8, "big")


def value(number: int, noise: bytes) -> bytes:
    """Half noise, half the same."""
    at = number * 7919 % (len(noise) - 75)
    return noise[at : at + 75] + b"2026-11-21 departed on time from gate number seven of terminal two of th"


def measure(folder: Path, named: dict[str, str], entries: int) -> list[str]:
    """Write, look up, scan."""
    settings = choose(PredefinedOptions.DEFAULT, named).settings
    store = RocksDBStore(folder / "db", RocksDBOptions(settings=settings, memory=RocksDBMemory.managed(32 * MIB)))
    picks = random.Random(1)
    noise = picks.randbytes(MIB)
    numbers = [2 * number for number in range(entries)]
    picks.shuffle(numbers)
    began = thread_time()
    store.write((key(number), value(number, noise)) for number in numbers)
    written = thread_time() - began
    store.flush()
    found = [f"{written * 1e6 / entries:.2f}"]
    for odd in (0, 1):
        wanted = [key(2 * picks.randrange(entries) + odd) for _ in range(LOOK_UPS)]
        began = thread_time()
        for start in range(0, LOOK_UPS, AT_ONCE):
            store.get_many(sorted(wanted[start : start + AT_ONCE]))
        found.append(f"{(thread_time() - began) * 1e6 / LOOK_UPS:.2f}")
    began = thread_time()
    count = sum(1 for _ in store.scan(b"", b"\xff"))
    found.append(f"{(thread_time() - began) * 1e6 / count:.2f}")
    found.append(f"{(store.property_int_value('rocksdb.live-sst-files-size') or 0) / MIB:.0f}")
    store.destroy()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=1_000_000)
    arguments = parser.parse_args()
    table = Table("options", "write us", "present us", "absent us", "scan us", "files MiB")
    single = {**FLINK, "compaction.style": "UNIVERSAL"}
    variants = {"ours": {}, **{f"{name}: {text}": {name: text} for name, text in single.items()}, "all as in Flink": FLINK}
    for title, named in variants.items():
        with tempfile.TemporaryDirectory() as folder:
            table.add_row(title, *measure(Path(folder), named, arguments.entries))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
