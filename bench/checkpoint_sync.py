"""The synchronous part of a checkpoint at 1 GiB of state: how long a batch waits for flush and hard links.

Fills 2 slots with `--gib` of state (values of 4 KiB), then goes on updating it with a checkpoint every 2 s, and prints for each checkpoint its
synchronous part, its duration and what it uploaded.

    .venv/bin/python bench/checkpoint_sync.py [--gib 1]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

VALUE_BYTES = 4096
BATCH = 20_000


class Keep(KeyedProcessFunction):
    """Keeps 4 KiB per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.PRIMITIVE_ARRAY(Types.BYTE())))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:  # noqa: ARG002  PyFlink's signature
        """Replace it by other bytes that do not compress."""
        random = np.random.default_rng(value.number)
        self.kept.update(random.bytes(VALUE_BYTES))
        yield value.key, value.number


def pipeline(job: Any) -> Any:
    """The job of ``statefulspark run``."""
    events = job.spark.readStream.schema("key bigint, number bigint").option("maxFilesPerTrigger", 1).parquet(job.args[0])
    return job.key_by(events, "key").process(Keep(), "key bigint, number bigint", uid="keep").writeStream.format("noop")


def main() -> None:
    """Fill, update, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0)
    arguments = parser.parse_args()
    keys = int(arguments.gib * (1 << 30) / VALUE_BYTES)
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as work:
        source = Path(work) / "in"
        source.mkdir()
        random = np.random.default_rng(1)
        fill = [np.arange(first, min(first + BATCH, keys)) for first in range(0, keys, BATCH)]
        updates = [random.integers(0, keys, BATCH) for _ in range(20)]
        for number, chosen in enumerate([*fill, *updates]):
            path = source / f"{number:05d}.parquet"
            pd.DataFrame({"key": chosen, "number": np.arange(len(chosen)) + number * BATCH}).to_parquet(path, index=False)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        run(Path(work), source, Console())
    os._exit(0)


def run(work: Path, source: Path, console: Console) -> None:
    """Run the job and print its checkpoints."""
    from statefulspark.config.manifest import validate_job
    from statefulspark.job.start import RunOptions, start_job

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
    table = Table("checkpoint", "batch", "state MiB", "uploaded MiB", "duration ms", "synchronous part ms")
    for info in seen.values():
        mib = 1 << 20
        table.add_row(
            str(info.id),
            str(info.batch),
            f"{info.size_bytes / mib:,.0f}",
            f"{info.uploaded_bytes / mib:,.0f}",
            str(info.duration_ms),
            str(info.sync_ms),
        )
    console.print(table)
    full = [info for info in seen.values() if info.size_bytes > 0.9 * max(other.size_bytes for other in seen.values())]
    console.print(f"longest synchronous part at full state: {max(info.sync_ms for info in full)} ms (target: under 100 ms)")


if __name__ == "__main__":
    main()
