"""What appending to a list costs: lists of 10 and of 100,000 elements, side by side.

One slot in one thread with RocksDB, one append of a LONG per key and batch, no Spark and no exchange. Batches of short and of long lists take turns.
CPU time of the thread, with prefetch, encoding, the changelog file and the write to the store; once with a cache that holds all lists, once with one
that holds few. Bytes are those of the changelog files, compressed as the slot uploads them. Reading a whole list is shown for comparison.

    .venv/bin/python bench/list_appends.py [--keys 50] [--batches 200] [--long 100000]
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import thread_time

from machine import Clock, load
from results import Result, Table, Target, arguments_of, keep

from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.api.descriptors import ListStateDescriptor
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.types.types import Types

GROUPS = 128
SHORT = 10


@dataclass
class Costs:
    """Of the appends to lists of one length, per append."""

    microseconds: list[float] = field(default_factory=list)
    changelog_bytes: list[float] = field(default_factory=list)


class Bench:
    """A slot whose batches append to lists."""

    def __init__(self, folder: Path, cache_bytes: int) -> None:
        self.folder = folder
        self.store = RocksDBStore(folder / "store")
        self.backend = KeyedStateBackend(
            self.store,
            StateRegistry(),
            uid="bench",
            key_codec=KeyCodec([Types.STRING()]),
            key_groups=KeyGroupRange(0, GROUPS - 1),
            budget=BatchBudget(cache_bytes=cache_bytes),
            spill_directory=folder / "spill",
        )
        self.state = self.backend.list_state(ListStateDescriptor("list", Types.LONG()))
        self.batch = 0
        self.random = Random(1)

    def append(self, keys: list[tuple[int, str]], count: int) -> tuple[float, int]:
        """Run a batch that adds random numbers, which do not compress; returns CPU seconds and the bytes of its changelog."""
        added = [[self.random.getrandbits(62) for _ in range(count)] for _ in keys]
        started = thread_time()
        self.backend.begin_batch(self.batch, processing_time_ms=0)
        self.backend.prefetch(self.backend.idents.of_all([(group, key.encode()) for group, key in keys]))
        for (group, key), values in zip(keys, added, strict=True):
            self.backend.set_current_key(group, key, key.encode())
            self.state.add_all(values)
        path = self.folder / f"changelog-{self.batch}"
        header = ChangelogHeader(uid="bench", slot=0, batch=self.batch, epoch=1, first_key_group=0, last_key_group=GROUPS - 1)
        changelog = ChangelogWriter(path, header)
        self.backend.finish_batch(changelog.append)
        changelog.close()
        self.backend.apply_pending()
        seconds = thread_time() - started
        size_bytes = path.stat().st_size
        path.unlink()
        self.batch += 1
        return seconds, size_bytes

    def read(self, keys: list[tuple[int, str]]) -> float:
        """Read lists in a batch that is undone; returns CPU seconds."""
        started = thread_time()
        self.backend.begin_batch(self.batch, processing_time_ms=0)
        for group, key in keys:
            self.backend.set_current_key(group, key, key.encode())
            sum(1 for _ in self.state.get())
        self.backend.abort_batch()
        return thread_time() - started


def measure(cache_bytes: int, keys: int, batches: int, lengths: tuple[int, int]) -> tuple[dict[int, Costs], dict[int, float]]:
    """Return the costs of appends and the microseconds of a read, by length of the lists."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), cache_bytes)
        lists = {length: [(number % GROUPS, f"{length}-{number:06d}") for number in range(keys)] for length in lengths}
        for length, names in lists.items():
            for name in names:
                bench.append([name], length)
        costs = {length: Costs() for length in lengths}
        for number in range(batches):
            # A short list is replaced when it has grown by half, so that it stays short.
            if number and number % (SHORT // 2) == 0:
                bench.backend.begin_batch(bench.batch, processing_time_ms=0)
                for group, key in lists[SHORT]:
                    bench.backend.set_current_key(group, key, key.encode())
                    bench.state.update([bench.random.getrandbits(62) for _ in range(SHORT)])
                bench.backend.finish_batch(lambda _changes: None)
                bench.backend.apply_pending()
                bench.batch += 1
            for length, names in lists.items():
                seconds, size_bytes = bench.append(names, 1)
                costs[length].microseconds.append(seconds / keys * 1e6)
                costs[length].changelog_bytes.append(size_bytes / keys)
        reads = {length: bench.read(names) / keys * 1e6 for length, names in lists.items()}
        bench.store.close()
    return costs, reads


def main() -> None:
    """Measure with a cache that holds all lists and with one that holds few."""
    parser = arguments_of(__doc__)
    parser.add_argument("--keys", type=int, default=50, help="lists of each length")
    parser.add_argument("--batches", type=int, default=200, help="batches of each length that are counted")
    parser.add_argument("--long", type=int, default=100_000, help="elements of the long lists")
    options = parser.parse_args()
    clock = Clock()
    loads, rows, targets, figures = [], [], [], {}
    for name, cache_bytes in (("all lists cached", 1 << 30), ("few lists cached", 1 << 16)):
        loads.append(load(name))
        costs, reads = measure(cache_bytes, options.keys, options.batches, (SHORT, options.long))
        for length, cost in costs.items():
            micros = statistics.median(cost.microseconds)
            rows.append((name, f"{length:,}", f"{micros:.1f}", f"{statistics.mean(cost.changelog_bytes):.0f}", f"{reads[length]:,.0f}"))
        short, long = costs.values()
        ratio = statistics.median(long.microseconds) / statistics.median(short.microseconds)
        targets.append(
            Target(
                what=f"CPU time of an append to a long list, {name}",
                wanted=125,
                measured=100 * ratio,
                unit="% of that to a short one",
                at_least=False,
            )
        )
        figures[name] = {
            str(length): {"microseconds": cost.microseconds, "changelog_bytes": cost.changelog_bytes} for length, cost in costs.items()
        }
    result = Result(
        **clock.header(__file__),
        title="Appending to lists",
        about=(
            f"CPU microseconds of the slot's thread and bytes of the changelog per append of one random `LONG`, one append per list and batch, "
            f"{options.keys} lists of each length on RocksDB, {options.batches} batches. A list is stored in segments from 1 KiB on. `read` is one `get()` of the whole list."
        ),
        loads=tuple(loads),
        targets=tuple(targets),
        tables=(Table(columns=("", "elements", "µs per append", "bytes per append", "µs per read"), rows=tuple(rows)),),
        figures=figures,
    )
    keep(result, options.result)


if __name__ == "__main__":
    main()
