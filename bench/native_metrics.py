"""What RocksDB's native metrics cost: rows per second of CPU with none, with all properties, and with the statistics behind tickers.

Each row reads and writes a LONG of its key; the decoded-object cache holds next to nothing, so that every key is read from RocksDB. All
native metrics that are on are read once per second of CPU, as a slot does with each sign of life. The three kinds take turns, so that
whatever else the machine does hits all of them; times are CPU time of all threads of the process, flushes and compactions included.

    .venv/bin/python bench/native_metrics.py [--keys 200000] [--repetitions 25]
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

from machine import Clock, load
from results import Result, Table, arguments_of, keep
from state_access import Key, run_batch

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.native_metrics import NATIVE_METRICS, needs_statistics, read_native_metrics
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore
from statefulspark.state.types.types import Types

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
    """Let the kinds take turns."""
    parser = arguments_of(__doc__)
    parser.add_argument("--keys", type=int, default=200_000, help="distinct keys, one row each per round")
    parser.add_argument("--repetitions", type=int, default=25, help="rounds of each kind that are counted")
    options = parser.parse_args()
    clock = Clock()
    loads = (load("all kinds in turns"),)
    texts = [f"key{number:07d}" for number in range(options.keys)]
    keys = sorted((number % 128, text, text.encode()) for number, text in enumerate(texts))
    halves = [keys[::2], keys[1::2]]
    with tempfile.TemporaryDirectory() as directory:
        slots = {kind: Slot(names, Path(directory) / str(number)) for number, (kind, names) in enumerate(KINDS.items())}
        for repetition in range(options.repetitions + 1):
            # Another one goes first each time.
            order = list(slots.values())
            for slot in order[repetition % len(order) :] + order[: repetition % len(order)]:
                slot.round(halves)
                slot.store.flush()
        for slot in slots.values():
            slot.store.close()
    base = slots["none"].seconds[1:]
    rows, figures = [], {}
    for kind, slot in slots.items():
        rates = [options.keys / seconds for seconds in slot.seconds[1:]]
        against = statistics.median(before / after for before, after in zip(base, slot.seconds[1:], strict=True)) - 1
        reading_us = statistics.median(slot.reads_us) if slot.reads_us else None
        spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} .. {max(rates):,.0f})"
        rows.append((kind, spread, f"{against:+.1%}" if kind != "none" else "-", f"{reading_us:,.0f} us" if reading_us else "-"))
        figures[kind] = {"rows_per_cpu_second": rates, "against_none": against, "reading_us": reading_us}
    result = Result(
        **clock.header(__file__),
        title="Native metrics of RocksDB",
        about=(
            "Rows per second of CPU of the whole process, flushes and compactions included, with no native metrics, with all properties, and with"
            f" the statistics behind tickers too; {options.keys:,} keys, a row each per round, a LONG read from RocksDB and written back. The"
            f" kinds take turns, {options.repetitions} rounds each. All metrics that are on are read once per second."
        ),
        loads=loads,
        tables=(
            Table(
                columns=("native metrics", "rows per CPU second, median", "against none, median of pairs", "one reading"), rows=tuple(rows)
            ),
        ),
        figures=figures,
    )
    keep(result, options.result)


if __name__ == "__main__":
    main()
