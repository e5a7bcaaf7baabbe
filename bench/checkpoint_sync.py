"""The synchronous part of a checkpoint at 1 GiB of state: how long a batch waits for flush and hard links.

Fills 2 slots with `--gib` of state (values of 4 KiB), then goes on updating it with a checkpoint every 2 s, and tells for each checkpoint its
synchronous part, its duration and what it uploaded. In the end the state must have as many keys as were written.

    .venv/bin/python bench/checkpoint_sync.py [--gib 1]
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plots
from machine import Clock, load
from results import Result, Table, Target, arguments_of, keep

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

VALUE_BYTES = 4096
BATCH = 20_000
TARGET_MS = 100.0
MIB = 1 << 20


class Keep(KeyedProcessFunction):
    """Keeps 4 KiB per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.PRIMITIVE_ARRAY(Types.BYTE())))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Replace it by other bytes that do not compress."""
        random = np.random.default_rng(value.number)
        self.kept.update(random.bytes(VALUE_BYTES))
        yield value.key, value.number


def pipeline(job: Any) -> Any:
    """The job of ``statefulspark run``."""
    events = job.spark.readStream.schema("key bigint, number bigint").option("maxFilesPerTrigger", 1).parquet(job.args[0])
    return job.key_by(events, "key").process(Keep(), "key bigint, number bigint", uid="keep").writeStream.format("noop")


def write_rows(source: Path, keys: int, updates: int) -> None:
    """Files that write every key once, and then files that write some again."""
    source.mkdir()
    random = np.random.default_rng(1)
    fill = [np.arange(first, min(first + BATCH, keys)) for first in range(0, keys, BATCH)]
    again = [random.integers(0, keys, BATCH) for _ in range(updates)]
    for number, chosen in enumerate([*fill, *again]):
        path = source / f"{number:05d}.parquet"
        pd.DataFrame({"key": chosen, "number": np.arange(len(chosen)) + number * BATCH}).to_parquet(path, index=False)
        os.utime(path, (1_700_000_000 + number,) * 2)


def run(work: Path, source: Path) -> list[Any]:
    """Run the job to its end; its checkpoints."""
    from statefulspark.config.manifest import validate_job
    from statefulspark.job.start.start_job import RunOptions, start_job

    manifest = validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "keep"},
            "spec": {
                "job": {"script": str(Path(__file__).resolve()), "args": [str(source)]},
                "parallelism": 2,
                "maxParallelism": 128,
                "driver": {"memory": "1Gi"},
                "checkpointing": {"dir": f"file://{work}/storage", "interval": "2s"},
            },
        }
    )
    job = start_job(manifest, RunOptions(until_idle=True))
    seen: dict[int, Any] = {}
    while not job.wait(0.1).final:
        seen |= {info.id: info for info in job.checkpoints()}
    error = job.status().error
    if error is not None:
        raise RuntimeError(error.message)
    return list(seen.values())


def check(work: Path, keys: int) -> None:
    """The last checkpoint holds every key."""
    from statefulspark.checkpoint.inspect.reader import state_sizes

    (size,) = [size for size in state_sizes(f"file://{work}/storage/keep") if size.info.name == "kept"]
    if size.entries != keys:
        raise RuntimeError(f"{size.entries:,} keys are in the last checkpoint, {keys:,} were written")


def main() -> None:
    """Fill, update, report."""
    parser = arguments_of(__doc__)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--updates", type=int, default=20, help="batches that write keys again")
    options = parser.parse_args()
    clock = Clock()
    keys = int(options.gib * (1 << 30) / VALUE_BYTES)
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as work:
        write_rows(Path(work) / "in", keys, options.updates)
        loads = (load("the run"),)
        infos = run(Path(work), Path(work) / "in")
        check(Path(work), keys)
    # What a job keeps also counts what updates have replaced and compaction has not removed.
    full = [info for info in infos if info.size_bytes > 0.9 * options.gib * (1 << 30)]
    longest = max(info.sync_ms for info in full)
    plot = None
    if options.result is not None:
        plot = "bench-checkpoint-sync.png"
        points = [(info.size_bytes / MIB, float(info.sync_ms)) for info in infos]
        plots.lines(
            options.result.with_name(plot),
            {"checkpoints in order": points},
            across="state, MiB",
            up="synchronous part, ms",
            bound=("target", TARGET_MS),
        )
    target = Target(what=f"synchronous part at {options.gib:g} GiB, longest", wanted=TARGET_MS, measured=longest, unit="ms", at_least=False)
    result = Result(
        **clock.header(__file__),
        title=f"Synchronous part of a checkpoint at {options.gib:g} GiB of state",
        about=(
            f"{keys:,} keys with values of 4 KiB that do not compress, in 2 slots on RocksDB, written in batches of {BATCH:,} rows and then "
            f"updated by {options.updates} batches more, with a checkpoint every 2 s. The synchronous part is the longest time for which a batch "
            "waited for flush and hard links in any slot. The last checkpoint held every key."
        ),
        loads=loads,
        targets=(target,),
        tables=(table(infos),),
        notes=(
            f"{sum(info.sync_ms < TARGET_MS for info in full)} of {len(full)} checkpoints at full state were under {TARGET_MS:.0f} ms.",
        ),
        figures={
            "checkpoints": [{"size_bytes": info.size_bytes, "sync_ms": info.sync_ms, "duration_ms": info.duration_ms} for info in infos]
        },
        plot=plot,
    )
    keep(result, options.result)
    os._exit(0)  # the JVM's threads need not be waited for


def table(infos: list[Any]) -> Table:
    """A row per checkpoint."""
    rows = [
        (
            str(info.id),
            str(info.batch),
            f"{info.size_bytes / MIB:,.0f}",
            f"{info.uploaded_bytes / MIB:,.0f}",
            f"{info.duration_ms:,}",
            f"{info.sync_ms:,}",
        )
        for info in infos
    ]
    return Table(columns=("checkpoint", "batch", "state MiB", "uploaded MiB", "duration ms", "synchronous part ms"), rows=tuple(rows))


if __name__ == "__main__":
    main()
