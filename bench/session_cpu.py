"""What event-time sessions cost a slot per row: the workload of `session_windows.py`, without Spark and the exchange.

One slot of two in one thread, with RocksDB and changelogs. Each batch has the rows whose keys are this slot's. CPU time of the thread, so other work on the machine matters little;
to compare two versions of the runtime, run them in turns with ``PYTHONPATH``.

    .venv/bin/python bench/session_cpu.py [--keys 100000] [--batch 100000] [--batches 5] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import tempfile
from hashlib import sha256
from pathlib import Path
from statistics import median
from time import thread_time

import numpy as np
import pyarrow as pa
from session_job import GAP_MS, Bounds, Count

from statefulspark import EventTimeSessionWindows, Time, Types
from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.keygroups import key_group_of_hash, key_group_range
from statefulspark.process.runner.function_runner import KeyedFunctionRunner, StepSpec
from statefulspark.process.windows.late_rows import LateRow
from statefulspark.process.windows.window_contents import AggregatedContents
from statefulspark.process.windows.window_operator import WindowOperator
from statefulspark.process.windows.window_results import WindowResults
from statefulspark.process.windows.windowing import Windowing
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.open_store import open_store

GROUPS = 128
GROUPS_OF_SLOT = key_group_range(0, 2, GROUPS)
PIECE_ROWS = 10_000
MIB = 1 << 20
WARM_UP = 2
UID = "sessions"
INPUT = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "UTC")), ("amount", pa.int64())])
OUTPUT = pa.schema([("key", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("count", pa.int64())])
BEGIN_MS = 1_767_225_600_000


class Rows:
    """The rows of the slot, batch by batch."""

    def __init__(self, *, keys: int, batch: int) -> None:
        self._random = np.random.default_rng(7)
        self._hashes = self._random.integers(-(1 << 31), 1 << 31, keys, dtype=np.int64)
        groups = key_group_of_hash(self._hashes, GROUPS)
        self._own = (groups >= GROUPS_OF_SLOT.first) & (groups <= GROUPS_OF_SLOT.last)
        self._names = np.array([f"key-{number:06d}" for number in range(keys)])
        self._batch = batch

    def of(self, number: int) -> list[pa.RecordBatch]:
        """Make the rows of a batch, one each millisecond, in the pieces in which they arrive."""
        drawn = self._random.integers(0, len(self._names), self._batch)
        at = np.arange(self._batch) + number * self._batch + BEGIN_MS
        mine = self._own[drawn]
        drawn, at = drawn[mine], at[mine]
        columns = {
            "__kh": pa.array(self._hashes[drawn]),
            "__src": pa.array(np.zeros(len(drawn), np.int32)),
            "key": pa.array(self._names[drawn]),
            "at": pa.array(at * 1000).cast(INPUT.field("at").type),
            "amount": pa.array(drawn % 100),
        }
        whole = pa.record_batch(columns)
        return [whole.slice(first, PIECE_ROWS) for first in range(0, len(drawn), PIECE_ROWS)]


class Slot:
    """The step of `session_job.py` in one slot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = open_store("rocksdb", folder / "db")
        self.backend = KeyedStateBackend(
            self.store,
            StateRegistry(),
            uid=UID,
            key_codec=KeyCodec([Types.STRING()]),
            key_groups=GROUPS_OF_SLOT,
            budget=BatchBudget(),
            spill_directory=folder / "spill",
        )
        windowing = Windowing(EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)))
        operator = WindowOperator(windowing, AggregatedContents(Count(), Types.LONG()), WindowResults(Bounds()), LateRow((0, 1, 2)))
        step = StepSpec(UID, operator, INPUT, OUTPUT, ("key",), "at", 0, GROUPS)
        none = OperatorStateBackend(StateRegistry(), uid=UID, slot=0, parallelism=2, start=StepOperatorState())
        self.runner = KeyedFunctionRunner(step, self.backend, operator_state=none, slot=0, parallelism=2, job_name="bench")
        self.runner.open()
        self.watermark_ms: int | None = None
        self.sessions = 0
        self.digests = sha256(), sha256()

    def run(self, batch: int, pieces: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Run a batch as a slot does, up to its changelog, and return its output."""
        self.backend.begin_batch(batch, processing_time_ms=0)
        results = list(
            self.runner.run(
                iter(pieces),
                watermark_ms=self.watermark_ms,
                processing_time_ms=0,
                sort_bytes=64 * MIB,
                spill_directory=self.folder / "sort",
            )
        )
        header = ChangelogHeader(
            uid=UID, slot=0, batch=batch, epoch=0, first_key_group=GROUPS_OF_SLOT.first, last_key_group=GROUPS_OF_SLOT.last
        )
        changelog = ChangelogWriter(self.changelog(batch), header)
        self.backend.finish_batch(changelog.append, rows=self.runner.rows_in)
        changelog.close()
        self.backend.apply_pending()
        self.watermark_ms = self.runner.max_event_time_ms
        return results

    def changelog(self, batch: int) -> Path:
        """Return the file of a batch."""
        return self.folder / f"changelog-{batch}"

    def note(self, batch: int, results: list[pa.RecordBatch]) -> None:
        """Add a batch to the digests of all output in its order, and of all changes by key."""
        output, changes = self.digests
        for result in results:
            self.sessions += result.num_rows
            output.update(repr(result.to_pylist()).encode())
        changes.update(repr(sorted(read_changelog(self.changelog(batch)).changes)).encode())


def settle_collector() -> None:
    """Set Python's cycle collector as a slot's process does; otherwise it takes a quarter of the time of a row."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=100_000, help="rows of a batch, in both slots")
    parser.add_argument("--batches", type=int, default=5, help=f"more than {WARM_UP}")
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead of how much it is")
    options = parser.parse_args()
    profile = cProfile.Profile(thread_time)
    rows = Rows(keys=options.keys, batch=options.batch)
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        slot = Slot(Path(folder))
        settle_collector()
        for batch in range(options.batches):
            pieces = rows.of(batch)
            if options.profile and batch == WARM_UP:
                profile.enable()
            began = thread_time()
            results = slot.run(batch, pieces)
            costs.append((thread_time() - began) / slot.runner.rows_in * 1e6)
            if not options.profile:
                slot.note(batch, results)
        profile.disable()
        slot.store.close()
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        return
    print(f"{median(costs[WARM_UP:]):.1f} us of CPU per row; batch by batch {', '.join(f'{cost:.1f}' for cost in costs)}")
    print(f"{slot.sessions:,} sessions; digests of output and changes {', '.join(digest.hexdigest()[:12] for digest in slot.digests)}")


if __name__ == "__main__":
    main()
