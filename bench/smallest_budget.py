"""How small a slot's managed memory may be: the figure behind `statefulspark.memory.split.MANAGED_BYTES_MIN`.

    .venv/bin/python bench/smallest_budget.py [--mib 4,8,12,16,24,32] [--seeds 3] [--written-mib 120]

50 states, values of 20 bytes to 4 KB, random updates, look-ups and scans, for each budget and seed in a fresh process. A budget works when what
RocksDB has in use (blocks, filters, write buffers) does not exceed it by more than a tenth.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

_KEYS = 300_000
_MIB = 1 << 20


def measure(managed_bytes: int, seed: int, written_bytes: int) -> tuple[float, int]:
    """Return MiB per second and the peak of what RocksDB had in use, in bytes."""
    from statefulspark.memory import split

    split.MANAGED_BYTES_MIN = 1  # type: ignore[misc]  # the bound is what is looked for
    from statefulspark.state.store.rocksdb_memory import RocksDBMemory
    from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

    folder = Path(tempfile.mkdtemp(prefix="smallest-budget-"))
    memory = RocksDBMemory.managed(managed_bytes)
    store = RocksDBStore(folder / "db", RocksDBOptions(memory=memory))
    chance, noise = random.Random(seed), os.urandom(_MIB)
    written = peak = rounds = 0
    started = time.monotonic()
    while written < written_bytes:
        changes = []
        for _ in range(1000):
            key, size, start = chance.randrange(_KEYS), chance.choice((20, 20, 20, 20, 20, 200, 4000)), chance.randrange(_MIB // 2)
            changes.append((b"%02d%08d" % (key % 50, key), noise[start : start + size]))
            written += size + 30
        store.write(changes)
        rounds += 1
        if rounds % 100 == 0:
            state = b"%02d" % chance.randrange(50)
            sum(1 for _ in store.scan(state, state + b"\xff"))
            store.get_many([b"%02d%08d" % (key % 50, key) for key in (chance.randrange(_KEYS) for _ in range(2000))])
        peak = max(peak, memory.usage_bytes())
    rate = written / _MIB / (time.monotonic() - started)
    store.close()
    shutil.rmtree(folder)
    return rate, peak


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", default="4,8,12,16,24,32")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--written-mib", type=int, default=120)
    arguments = parser.parse_args()
    table = Table("managed MiB", "MiB/s written", "peak in use, MiB", "worst above the budget")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for mebibytes in map(int, arguments.mib.split(",")):
            cases = [(mebibytes * _MIB, seed, arguments.written_mib * _MIB) for seed in range(arguments.seeds)]
            found = pool.starmap(measure, cases, chunksize=1)
            rates, peaks = [rate for rate, _ in found], [peak / _MIB for _, peak in found]
            table.add_row(
                str(mebibytes),
                " ".join(f"{rate:.0f}" for rate in rates),
                " ".join(f"{peak:.1f}" for peak in peaks),
                f"{max(peaks) / mebibytes - 1:+.0%}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
