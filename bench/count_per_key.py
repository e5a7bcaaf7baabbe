"""Count per key, side by side in one run: this runtime (row at a time), Spark's Python transformWithState, Spark's JVM aggregation.

1,000,000 events over 100,000 keys in batches of 100,000; 2 slots; RocksDB; checkpoints every 10 s. Each contender runs in a process of its
own, one after the other, on the same files. Rates leave out the first two batches (start of JVM, Python workers, code generation).

    .venv/bin/python bench/count_per_key.py [--events 1000000] [--keys 100000] [--rounds 3] [-o results.json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

INPUT = "key string, at timestamp, amount bigint"
OUTPUT = "key string, count bigint"
BATCH = 100_000
WARM_UP = 2


class Count(KeyedProcessFunction):
    """Counts the rows of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:  # noqa: ARG002  PyFlink's signature
        """One more."""
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value.key, count


def write_events(folder: Path, events: int, keys: int) -> None:
    """Files of BATCH rows in event-time order."""
    random = np.random.default_rng(7)
    start = pd.Timestamp("2026-01-01")
    for number in range(events // BATCH):
        at = start + pd.to_timedelta(np.arange(BATCH) + number * BATCH, unit="ms")
        frame = pd.DataFrame(
            {
                "key": [f"key-{n:06d}" for n in random.integers(0, keys, BATCH)],
                "at": pd.Series(at).astype("datetime64[us]"),
                "amount": random.integers(0, 100, BATCH),
            }
        )
        frame.to_parquet(folder / f"events-{number:04d}.parquet", index=False)


def pipeline(job: Any) -> Any:
    """The job of ``statefulspark run``."""
    events = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(job.args[0])
    counts = job.key_by(events, "key").process(Count(), OUTPUT, uid="count", event_time="at")
    return counts.writeStream.format("noop")


def run_ours(source: str, work: Path) -> list[dict[str, Any]]:
    """This runtime, with changelogs and checkpoints."""
    from statefulspark.config.manifest import validate_job
    from statefulspark.job.start import RunOptions, start_job

    manifest = validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "count"},
            "spec": {
                "job": {"script": str(Path(__file__).resolve()), "args": [source]},
                "parallelism": 2,
                "maxParallelism": 128,
                "driver": {"memory": "2Gi"},
                "checkpointing": {"dir": f"file://{work}/storage", "interval": "10s"},
            },
        }
    )
    job = start_job(manifest, RunOptions(until_idle=True))
    progress: dict[int, dict[str, Any]] = {}
    while not job.wait(0.2).final:
        for entry in job.recent_progress():
            progress[entry["batch"]] = entry
    status = job.status()
    if status.error is not None:
        raise RuntimeError(status.error.message)
    return [progress[batch] for batch in sorted(progress)]


def _spark(work: Path) -> Any:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.local.dir", str(work))
        .getOrCreate()
    )


def _run_spark(source: str, work: Path, build: Callable[[Any], Any], mode: str) -> list[dict[str, Any]]:
    spark = _spark(work)
    spark.sparkContext.setLogLevel("ERROR")
    events = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(source)
    writer = build(events).writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
    query.awaitTermination()
    entries = [
        {"batch": p.batchId, "rows": p.numInputRows, "ms": p.durationMs["triggerExecution"]} for p in query.recentProgress if p.numInputRows
    ]
    spark.stop()
    return entries


def run_aggregation(source: str, work: Path) -> list[dict[str, Any]]:
    """Spark's own JVM aggregation."""
    return _run_spark(source, work, lambda events: events.groupBy("key").count(), "update")


def run_transform_with_state(source: str, work: Path) -> list[dict[str, Any]]:
    """Spark's Python transformWithState, row form."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class CountProcessor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.state = handle.getValueState("count", "count bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803, ARG002  Spark's names
            count = self.state.get()[0] if self.state.exists() else 0
            for _ in rows:
                count += 1
                yield Row(key=key[0], count=count)
            self.state.update((count,))

        def close(self) -> None:
            pass

    def build(events: Any) -> Any:
        return events.groupBy("key").transformWithState(
            statefulProcessor=CountProcessor(), outputStructType=OUTPUT, outputMode="Update", timeMode="None"
        )

    return _run_spark(source, work, build, "update")


CONTENDERS: dict[str, Callable[[str, Path], list[dict[str, Any]]]] = {
    "statefulspark": run_ours,
    "spark JVM groupBy().count()": run_aggregation,
    "spark Python transformWithState": run_transform_with_state,
}


def rate(entries: list[dict[str, Any]]) -> float:
    """Rows per second after the warm-up."""
    steady = [entry for entry in entries if entry["rows"] >= BATCH][WARM_UP:]
    return sum(entry["rows"] for entry in steady) / (sum(entry["ms"] for entry in steady) / 1000)


def main() -> None:
    """Run all contenders and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help="(internal) run one contender on this folder")
    parser.add_argument("--source")
    parser.add_argument("--only", help="comma-separated beginnings of contenders' names")
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    if arguments.one:
        with tempfile.TemporaryDirectory() as work:
            print("RESULT " + json.dumps(CONTENDERS[arguments.one](arguments.source, Path(work))), flush=True)
        os._exit(0)
    source = Path(tempfile.mkdtemp(prefix="bench-events-"))
    write_events(source, arguments.events, arguments.keys)
    chosen = [name for name in CONTENDERS if not arguments.only or any(name.startswith(part) for part in arguments.only.split(","))]
    rates: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(arguments.rounds):
        for name in chosen:
            if name.endswith("transformWithState") and rates[name]:
                continue  # two minutes a run: once is enough to tell 25 times
            rates[name].append(rate(run_one(name, source)))
    shutil.rmtree(source)
    report(rates, arguments.output)


def run_one(name: str, source: Path) -> list[dict[str, Any]]:
    """Run a contender in a process of its own."""
    started = time.monotonic()
    command = [sys.executable, __file__, "--one", name, "--source", str(source)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=900)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if line is None:
        raise RuntimeError(f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    entries: list[dict[str, Any]] = json.loads(line.removeprefix("RESULT "))
    return entries


def report(rates: dict[str, list[float]], output: str | None) -> None:
    """Print rows per second (median and range) and ratios."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ours = medians.get("statefulspark")
    table = Table("contender", "rows/s (median)", "range", "ours is")
    for name, values in rates.items():
        ratio = f"{ours / medians[name]:.2f} x" if ours is not None else ""
        table.add_row(name, f"{medians[name]:,.0f}", f"{min(values):,.0f} - {max(values):,.0f}", ratio)
    Console().print(table)
    if output:
        Path(output).write_text(json.dumps(rates, indent=1))


if __name__ == "__main__":
    main()
