"""What firing timers costs beside many that are not due: it should depend on the due ones only.

One slot in one thread with RocksDB and timers in it or on the Python heap, a function that registers one processing-time timer per key, no Spark and no exchange. Then batches without rows
fire 10,000 timers each, out of 100,000 or a million pending ones. CPU time of the thread, so other work on the machine matters little.

    .venv/bin/python bench/pending_timers.py [--due 10000] [--pending 100000 1000000] [--result FILE]
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

import numpy as np
import pyarrow as pa
from machine import Clock, load
from results import Result, Table, Target, arguments_of, keep, spread

from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.process.runner.function_runner import KeyedFunctionRunner, StepSpec
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.open_store import open_store
from statefulspark.state.types.types import Types

GROUPS = 128
FIRINGS = 5
ROWS_PER_BATCH = 50_000
DUE_MS = 1_000_000
"""When the first timers are due; those of later batches follow in seconds."""
MIB = 1 << 20
_WANTED = 150.0
"""Per cent: ten times as many timers that are not due may make the store's blocks colder, and nothing else."""
ROWS = pa.schema([("key", pa.int64())])


class Alarms(KeyedProcessFunction):
    """Registers a timer per key; keys of one batch are spread over the times of all batches."""

    def __init__(self, *, due: int, pending: int) -> None:
        self.firings = max(1, pending // due)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        # Which batch fires a key's timer has nothing to do with its key group.
        ctx.timer_service().register_processing_time_timer(DUE_MS + value.key * 7919 % self.firings * 1000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[int]]:
        yield (ctx.get_current_key(),)


def rows_of(first: int, rows: int) -> pa.RecordBatch:
    """New keys, with the columns that the exchange adds; their order is that of their hashes, as after Spark's shuffle."""
    keys = np.arange(first, first + rows, dtype=np.int64)
    hashes = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)
    columns = [pa.array(hashes), pa.array(np.zeros(rows, np.int32)), pa.array(keys)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([("__kh", pa.int64()), ("__src", pa.int32()), ("key", pa.int64())]))


def measure(folder: Path, *, pending: int, due: int, heap_timers: bool) -> tuple[list[float], float]:
    """Return the CPU seconds per due timer of each batch that fires some, and those of each timer that is registered."""
    store = open_store("rocksdb", folder / "db", heap_timers=heap_timers)
    backend = KeyedStateBackend(
        store,
        StateRegistry(),
        uid="alarms",
        key_codec=KeyCodec([Types.LONG()]),
        key_groups=KeyGroupRange(0, GROUPS - 1),
        budget=BatchBudget(),
        spill_directory=folder / "spill",
    )
    step = StepSpec("alarms", Alarms(due=due, pending=pending), ROWS, ROWS, ("key",), None, 0, GROUPS)
    none = OperatorStateBackend(StateRegistry(), uid="alarms", slot=0, parallelism=1, start=StepOperatorState())
    runner = KeyedFunctionRunner(step, backend, operator_state=none, slot=0, parallelism=1, job_name="bench")
    runner.open()
    batch = -1

    def run(pieces: list[pa.RecordBatch], now_ms: int) -> None:
        nonlocal batch
        batch += 1
        backend.begin_batch(batch, processing_time_ms=now_ms)
        results = runner.run(
            iter(pieces), watermark_ms=None, processing_time_ms=now_ms, sort_bytes=64 * MIB, spill_directory=folder / "sort"
        )
        for _ in results:
            pass
        backend.finish_batch(lambda _: None)
        backend.apply_pending()

    began = thread_time()
    for first in range(0, pending, ROWS_PER_BATCH):
        run([rows_of(first, min(ROWS_PER_BATCH, pending - first))], 0)
    registering = (thread_time() - began) / pending
    costs = []
    for firing in range(min(FIRINGS, pending // due)):
        began = thread_time()
        run([], DUE_MS + firing * 1000)
        costs.append((thread_time() - began) / runner.timers_fired)
    store.close()
    return costs, registering


def main() -> None:
    """Measure with timers in RocksDB and on the heap."""
    parser = arguments_of(__doc__)
    parser.add_argument("--due", type=int, default=10_000, help="timers per batch")
    parser.add_argument("--pending", type=int, nargs="+", default=[100_000, 1_000_000], help="the fewest first")
    options = parser.parse_args()
    clock = Clock()
    loads, rows, targets, figures = [], [], [], {}
    for service in ("rocksdb", "heap"):
        loads.append(load(f"timers in {service}"))
        costs: dict[int, float] = {}
        for pending in options.pending:
            with tempfile.TemporaryDirectory() as folder:
                fired, registering = measure(Path(folder), pending=pending, due=options.due, heap_timers=service == "heap")
            costs[pending] = median(fired)
            rows.append(
                (
                    service,
                    f"{pending:,}",
                    f"{registering * 1e6:.1f}",
                    f"{costs[pending] * 1e6:.1f}",
                    spread([each * 1e6 for each in fired], 1),
                )
            )
        figures[service] = costs
        fewest, most = options.pending[0], options.pending[-1]
        targets.append(
            Target(
                what=f"CPU time per due timer beside {most:,} pending ones, timers in {service}",
                wanted=_WANTED,
                measured=100 * costs[most] / costs[fewest],
                unit=f"% of that beside {fewest:,}",
                at_least=False,
            )
        )
    result = Result(
        **clock.header(__file__),
        title="Timers that are due, beside others that are not",
        about=(
            f"CPU microseconds of the slot's thread, in batches without rows that fire {options.due:,} processing-time timers each and emit a row for each. "
            f"One slot with {GROUPS} key groups and a timer per key; of each number of pending timers up to {FIRINGS} batches."
        ),
        loads=tuple(loads),
        targets=tuple(targets),
        tables=(
            Table(
                columns=("timers in", "pending at first", "µs per row that registers one", "µs per due timer, median", "range"),
                rows=tuple(rows),
            ),
        ),
        figures=figures,
    )
    keep(result, options.result)


if __name__ == "__main__":
    main()
