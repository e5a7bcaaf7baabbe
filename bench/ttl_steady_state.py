"""What time to live costs at steady state: keys that never come back, cleanup in slices after each batch as a slot runs it.

One slot in one thread with RocksDB, a function that writes one value per row, no Spark and no exchange. Each key lives for ten batches. CPU time of
the thread, so other work on the machine matters little; "cleanup" is its share after the first two times to live. Entries are counted after each batch,
before and after the cleanup, and RocksDB's table files after each batch; the most of all batches is shown.

    .venv/bin/python bench/ttl_steady_state.py [--keys 1000000] [--rows 20000] [--only-cleanup]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.process.runner.function_runner import KeyedFunctionRunner, StepSpec
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types

BATCH_MS = 1000
LIVES_FOR = 10
GROUPS = 128
MIB = 1 << 20
ROWS = pa.schema([("key", pa.int64())])


class Seen(KeyedProcessFunction):
    """Remembers each key; ``cleanup`` is None for no time to live, else whether the background cleanup is on."""

    def __init__(self, *, cleanup: bool | None) -> None:
        self.cleanup = cleanup

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("seen", Types.LONG())
        if self.cleanup is not None:
            builder = StateTtlConfig.new_builder(Time.milliseconds(LIVES_FOR * BATCH_MS))
            descriptor.enable_time_to_live((builder if self.cleanup else builder.disable_cleanup_in_background()).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int]]:
        if self.seen.value() is None:
            yield (value.key,)
        self.seen.update(value.key)


@dataclass(slots=True)
class Measured:
    """Of one way to keep the state."""

    batch_seconds: float = 0.0
    cleanup_seconds: float = 0.0
    slice_seconds: float = 0.0
    steady_seconds: tuple[float, float] = (0.0, 0.0)
    """Of the batches and of the cleanup, after the first two times to live."""
    most_stored: int = 0
    """Right before a cleanup."""
    most_left: int = 0
    """Right after one."""
    disk_bytes: int = 0


def batch_of(first: int, rows: int) -> pa.RecordBatch:
    """New keys, with the columns that the exchange adds; their order is that of their hashes, as after Spark's shuffle."""
    keys = np.arange(first, first + rows, dtype=np.int64)
    hashes = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)
    columns = [pa.array(hashes), pa.array(np.zeros(rows, np.int32)), pa.array(keys)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([("__kh", pa.int64()), ("__src", pa.int32()), ("key", pa.int64())]))


def measure(folder: Path, keys: int, rows: int, *, cleanup: bool | None) -> Measured:
    """Run batches until all keys have come."""
    store = RocksDBStore(folder / "db")
    backend = KeyedStateBackend(
        store,
        StateRegistry(),
        uid="seen",
        key_codec=KeyCodec([Types.LONG()]),
        key_groups=KeyGroupRange(0, GROUPS - 1),
        budget=BatchBudget(),
        spill_directory=folder / "spill",
    )
    step = StepSpec("seen", Seen(cleanup=cleanup), ROWS, ROWS, ("key",), None, 0, GROUPS)
    none = OperatorStateBackend(StateRegistry(), uid="seen", slot=0, parallelism=1, start=StepOperatorState())
    runner = KeyedFunctionRunner(step, backend, operator_state=none, slot=0, parallelism=1, job_name="bench")
    runner.open()
    found, warm_up = Measured(), (0.0, 0.0)
    for batch in range(keys // rows):
        piece = batch_of(batch * rows, rows)
        now_ms = batch * BATCH_MS
        if batch == 2 * LIVES_FOR:
            warm_up = found.batch_seconds, found.cleanup_seconds
        began = thread_time()
        backend.begin_batch(batch, processing_time_ms=now_ms)
        results = runner.run(
            iter([piece]), watermark_ms=None, processing_time_ms=now_ms, sort_bytes=64 * MIB, spill_directory=folder / "sort"
        )
        for _ in results:
            pass
        backend.finish_batch(lambda _: None, rows=rows)
        backend.apply_pending()
        swept = thread_time()
        found.batch_seconds += swept - began
        came = (batch + 1) * rows
        found.most_stored = max(found.most_stored, came - expired(backend))
        more = True
        while more:
            started = thread_time()
            more = backend.sweep()
            found.slice_seconds = max(found.slice_seconds, thread_time() - started)
        found.cleanup_seconds += thread_time() - swept
        found.most_left = max(found.most_left, came - expired(backend))
        found.disk_bytes = max(found.disk_bytes, files_bytes(folder / "db"))
    found.steady_seconds = found.batch_seconds - warm_up[0], found.cleanup_seconds - warm_up[1]
    stored = sum(1 for _ in store.scan(b"", b"\xff\xff"))
    if stored != keys - expired(backend):
        raise RuntimeError(f"{stored} entries are stored, and {expired(backend)} of {keys} were deleted")
    store.flush()
    store.close()
    found.disk_bytes = max(found.disk_bytes, files_bytes(folder / "db"))
    return found


def expired(backend: KeyedStateBackend) -> int:
    """Entries that the cleanup has deleted."""
    return sum(backend.cleanup_report().expired.values())


def files_bytes(folder: Path) -> int:
    """Bytes of RocksDB's table files; a compaction may delete one meanwhile."""
    found = 0
    for file in folder.glob("*.sst"):
        with suppress(FileNotFoundError):
            found += file.stat().st_size
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=20_000, help="per batch")
    parser.add_argument("--only-cleanup", action="store_true", help="leave out the ways without it")
    arguments = parser.parse_args()
    table = Table(
        "state",
        "CPU us per row",
        "cleanup us per row",
        "cleanup",
        "longest slice ms",
        "most stored",
        "by live",
        "after cleanup",
        "MiB on disk",
    )
    ways = (("no time to live", None), ("time to live, no cleanup", False), ("time to live", True))
    for name, cleanup in ways[2:] if arguments.only_cleanup else ways:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder), arguments.keys, arguments.rows, cleanup=cleanup)
        table.add_row(
            name,
            f"{found.batch_seconds / arguments.keys * 1e6:.2f}",
            f"{found.cleanup_seconds / arguments.keys * 1e6:.2f}",
            f"{found.steady_seconds[1] / max(1e-9, sum(found.steady_seconds)):.1%}",
            f"{found.slice_seconds * 1e3:.2f}",
            f"{found.most_stored:,}",
            f"{found.most_stored / (LIVES_FOR * arguments.rows):.2f}",
            f"{found.most_left / (LIVES_FOR * arguments.rows):.2f}",
            f"{found.disk_bytes / MIB:.1f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
