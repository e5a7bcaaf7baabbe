"""What RocksDB's native metrics cost: rows per second of CPU with none, with all properties, and with the statistics behind tickers.

Each row reads and writes a LONG of its key; the decoded-object cache holds next to nothing, so that every key is read from RocksDB. All
native metrics that are on are read once per second of CPU, as a slot does with each sign of life. The three kinds take turns, so that
whatever else the machine does hits all of them; times are CPU time of all threads of the process, flushes and compactions included.

    .venv/bin/python bench/native_metrics.py [--keys 60000] [--repetitions 9]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

from rich.console import Console
from rich.table import Table
from state_access import Key, run_batch

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.keys import KeyCodec
from statefulspark.state.native_metrics import NATIVE_METRICS, needs_statistics, read_native_metrics
from statefulspark.state.registry import StateRegistry
from statefulspark.state.rocksdb import RocksDBOptions, RocksDBStore
from statefulspark.state.typeinfo import Types

KINDS = {
    "none": (),
    "all properties": tuple(name for name, metric in NATIVE_METRICS.items() if not metric.tickers),
    "all, with statistics": tuple(NATIVE_METRICS),
}
READ_EVERY_S = 1.0


@dataclass
class Slot:
    """One store with some metrics switched on, and what its rounds took."""

    names: tuple[str, ...]
    folder: Path
    seconds: list[float] = field(default_factory=list)
    reads_us: list[float] = field(default_factory=list)
    batch: int = 0
    since_read_s: float = 0.0

    def __post_init__(self) -> None:
        self.store = RocksDBStore(self.folder / "store", RocksDBOptions(statistics=needs_statistics(self.names)))
        self.backend = KeyedStateBackend(
            self.store,
            StateRegistry(),
            uid="bench",
            key_codec=KeyCodec([Types.STRING()]),
            key_groups=KeyGroupRange(0, 127),
            budget=BatchBudget(cache_bytes=4 << 20),
            spill_directory=self.folder / "spill",
        )

    def round(self, halves: list[list[Key]]) -> None:
        """Run a batch over each half of the keys."""
        started = process_time()
        for keys in halves:
            run_batch(self.backend, self.batch, keys)
            self.batch += 1
        self.since_read_s += process_time() - started
        if self.names and self.since_read_s >= READ_EVERY_S:
            self.since_read_s = 0.0
            before = process_time()
            found = list(read_native_metrics(self.store, self.names))
            self.reads_us.append((process_time() - before) * 1e6)
            assert len(found) >= len(self.names)  # noqa: S101  a metric that is missing makes the measurement void
        self.seconds.append(process_time() - started)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=60_000, help="distinct keys, one row each per round")
    parser.add_argument("--repetitions", type=int, default=9, help="rounds of each kind that are counted")
    arguments = parser.parse_args()
    texts = [f"key{number:07d}" for number in range(arguments.keys)]
    keys = sorted((number % 128, text, text.encode()) for number, text in enumerate(texts))
    halves = [keys[::2], keys[1::2]]
    with tempfile.TemporaryDirectory() as directory:
        slots = {kind: Slot(names, Path(directory) / str(number)) for number, (kind, names) in enumerate(KINDS.items())}
        for repetition in range(arguments.repetitions + 1):
            # Another one goes first each time.
            order = list(slots.values())
            for slot in order[repetition % len(order) :] + order[: repetition % len(order)]:
                slot.round(halves)
                slot.store.flush()
        for slot in slots.values():
            slot.store.close()
    base = slots["none"].seconds[1:]
    table = Table("native metrics", "rows per CPU second (median)", "slowest", "fastest", "against none (median of pairs)", "one reading")
    for kind, slot in slots.items():
        rates = [arguments.keys / seconds for seconds in slot.seconds[1:]]
        against = statistics.median(before / after for before, after in zip(base, slot.seconds[1:], strict=True)) - 1
        reading = f"{statistics.median(slot.reads_us):,.0f} us" if slot.reads_us else "-"
        rate = f"{statistics.median(rates):,.0f}"
        table.add_row(kind, rate, f"{min(rates):,.0f}", f"{max(rates):,.0f}", f"{against:+.1%}" if kind != "none" else "-", reading)
    Console().print(table)


if __name__ == "__main__":
    main()
