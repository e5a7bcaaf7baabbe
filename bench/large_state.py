"""Checkpoints, restores and rescales of large state: 4 GiB on two slots, beside `cp`, parallel GETs, and Spark's offline repartition of equal state.

Each question has a wanted ratio:

* What do incremental checkpoints upload and take, with 1 % of the keys changed before each, beside a full one, for both styles of compaction?
* How fast is a restore at equal parallelism, from files and from an S3 service over HTTP, beside copies of the same files on the same machine?
* How long does a job pause when it is rescaled in place, beside such a restore, and beside the time in which Spark repartitions the state of its own
  query offline?

    .venv/bin/python bench/large_state.py [--gib 4] [--value-bytes 1024] [--checkpoints 20] [--rounds 3] [--no-spark]

The S3 service is Versity S3 Gateway (`make versity` installs it); without it, its part is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from large_state_job import STATE, UID, value_of
from large_state_restores import GROUPS, NAME, restores
from machine import Clock, load
from results import Result, Table, Target, arguments_of, keep

_BATCH = 50_000
_CHANGED = 0.01
_RESULT = "RESULT "
_LIMIT_S = 1800
_MIB = 1 << 20
_SETTLING = 5
"""Incremental checkpoints that do not count: the fill has left files behind that RocksDB merges meanwhile."""
_SAMPLE = 1000
"""Keys whose values are compared with what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much state, and where everything is."""

    work: str
    keys: int
    value_bytes: int
    checkpoints: int
    style: str = "LEVEL"
    """Of RocksDB's compaction."""

    @property
    def files(self) -> int:
        """Written before the job is rescaled, a batch each."""
        return -(-self.keys // _BATCH) + _SETTLING + self.checkpoints

    @property
    def storage(self) -> Path:
        """Below the folder that the S3 service serves, in its bucket."""
        return Path(self.work) / "s3" / "bucket" / "storage"

    @property
    def source(self) -> Path:
        """The job's input."""
        return Path(self.work) / "in"

    @property
    def changed(self) -> int:
        """Keys that are written before each incremental checkpoint."""
        return max(1, int(self.keys * _CHANGED))

    def rows(self, number: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Keys of the file with this number: all keys once, then a random part of them again and again."""
        fill = -(-self.keys // _BATCH)
        if number < fill:
            return np.arange(number * _BATCH, min((number + 1) * _BATCH, self.keys))
        return np.random.default_rng(number).choice(self.keys, self.changed, replace=False)

    def write_file(self, number: int) -> None:
        """Write one file, which is one batch. A row's number tells file and place, so that each value is another one."""
        keys = self.rows(number)
        # Elsewhere first: Spark lists the folder of its source all the time, and takes up any file.
        unfinished = Path(self.work) / "unfinished.parquet"
        pd.DataFrame({"key": keys, "number": np.arange(len(keys)) + number * _BATCH}).to_parquet(unfinished, index=False)
        os.utime(unfinished, (1_700_000_000 + number,) * 2)
        unfinished.rename(self.source / f"{number:05d}.parquet")


def start(size: Size) -> Any:
    """Start the job in this process, from its last checkpoint if it has one."""
    from statefulspark.config.manifest import validate_job
    from statefulspark.job.start.start_job import RunOptions, start_job

    manifest = validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": NAME},
            "spec": {
                "job": {"script": str(Path(__file__).with_name("large_state_job.py")), "args": [str(size.source), str(size.value_bytes)]},
                "parallelism": 2,
                "maxParallelism": GROUPS,
                "driver": {"memory": "3Gi"},
                "checkpointing": {"dir": f"file://{size.storage}", "interval": "5h"},
                "stateBackend": {"type": "rocksdb", "rocksdb": {"options": {"compaction.style": size.style}}},
            },
        }
    )
    return start_job(manifest, RunOptions())


def take(job: Any) -> dict[str, int]:
    """Take a checkpoint; what it uploaded and took."""
    info = job.trigger_checkpoint(600)
    return {"uploaded": info.uploaded_bytes, "size": info.size_bytes, "ms": info.duration_ms, "sync_ms": info.sync_ms}


def wait_for(job: Any, number: int) -> None:
    """Wait until the file with this number, which is the batch with this number, is committed."""
    until_s = time.monotonic() + _LIMIT_S
    while job.status().batch < number:
        status = job.status()
        if job.wait(0.05).final or status.failing is not None or time.monotonic() > until_s:
            raise RuntimeError(f"the job failed or stands still: {status}")


def checkpoints(size: Size) -> dict[str, Any]:
    """Phase one: fill, a full checkpoint, then incremental ones; the job is suspended with its state."""
    size.source.mkdir(parents=True)
    fill = -(-size.keys // _BATCH)
    for number in range(fill):
        size.write_file(number)
    job = start(size)
    wait_for(job, fill - 1)
    full = take(job)
    increments = []
    for number in range(fill, size.files):
        size.write_file(number)
        wait_for(job, number)
        increments.append(take(job))
    job.stop(savepoint=False, target=None, drain=False, timeout_s=600)
    return {"full": full, "increments": increments[_SETTLING:], "settling": increments[:_SETTLING]}


def rescale(size: Size) -> dict[str, Any]:
    """Phase three: restore the job, and rescale it in place while files with rows keep coming."""
    job = start(size)
    size.write_file(size.files)
    wait_for(job, size.files)
    os.sync()  # a job that has run for a while has no files of its restore left to write
    job.rescale(3, 900)
    done = job.status().last_rescale
    job.stop(savepoint=False, target=None, drain=False, timeout_s=600)
    return {"pause_ms": done.pause_ms}


def spark_repartition(size: Size) -> dict[str, Any]:
    """Phase four: the same rows in the state of Spark's own `groupBy().agg()`, repartitioned from 2 to 3 offline."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": provider,
        "spark.driver.memory": "4g",
        "spark.sql.streaming.minBatchesToRetain": "2",  # each is several GiB
    }
    builder = SparkSession.builder.master("local[2]").appName("repartition")
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # As many random bytes per key as our job keeps; a new row of the same key replaces them.
    seeds = [F.sha2(F.concat(F.col("number").cast("string"), F.lit(f"-{part}")), 512) for part in range(-(-size.value_bytes // 64))]
    value = F.unhex(F.concat(*seeds))
    events = spark.readStream.schema("key bigint, number bigint").option("maxFilesPerTrigger", 30).parquet(str(size.source))
    kept = events.withColumn("value", value).groupBy("key").agg(F.max("value").alias("value"))
    location = f"{size.work}/spark"
    writer = kept.writeStream.format("noop").outputMode("update").option("checkpointLocation", location)
    began = time.monotonic()
    writer.trigger(availableNow=True).start().awaitTermination()
    filled = time.monotonic() - began
    began = time.monotonic()
    spark._streamingCheckpointManager.repartition(location, 3)  # noqa: SLF001  Spark has no other name for it yet
    return {"repartition_s": time.monotonic() - began, "fill_s": filled}


PHASES = {"checkpoints": checkpoints, "rescale": rescale, "spark": spark_repartition}


def phase(name: str, size: Size) -> dict[str, Any]:
    """Run a phase in a process of its own."""
    os.sync()  # what was written before is not its to wait for
    command = [sys.executable, __file__, "--phase", name, "--size", json.dumps(asdict(size))]
    with (Path(size.work) / f"{name}.log").open("wb") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, timeout=2 * _LIMIT_S, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith(_RESULT)]
    if not found:
        raise SystemExit(f"{name} failed:\n{(Path(size.work) / f'{name}.log').read_text()[-4000:]}")
    answer: dict[str, Any] = json.loads(found[0].removeprefix(_RESULT))
    return answer


def check(size: Size) -> None:
    """The last checkpoint holds every key, and of some the value that was written last."""
    from statefulspark import state_tables

    numbers = {}
    for number in range(size.files + 1):
        for place, key in enumerate(size.rows(number)):
            if key < _SAMPLE:
                numbers[int(key)] = number * _BATCH + place
    table = state_tables.read_arrow((size.storage / NAME).as_uri(), UID, STATE)
    if table.num_rows != size.keys:
        raise SystemExit(f"{table.num_rows:,} keys are stored, {size.keys:,} were written")
    keys = table.column("key").to_numpy()
    values = table.column("value")
    for at in np.flatnonzero(keys < _SAMPLE):
        if values[int(at)].as_py() != value_of(numbers[int(keys[at])], size.value_bytes):
            raise SystemExit(f"key {keys[at]} has another value than was written last")


def main() -> None:
    """Run the phases one after the other."""
    parser = arguments_of(__doc__)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--value-bytes", type=int, default=1024)
    parser.add_argument("--checkpoints", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--styles", nargs="+", default=["UNIVERSAL", "LEVEL"], help="of compaction; restores and rescales are of the last one"
    )
    parser.add_argument("--no-spark", action="store_true", help="leave out Spark's repartition")
    parser.add_argument("--phase", help="for the benchmark itself")
    parser.add_argument("--size", help="for the benchmark itself")
    options = parser.parse_args()
    if options.phase is not None:
        found = PHASES[options.phase](Size(**json.loads(options.size)))
        print(_RESULT + json.dumps(found), flush=True)
        os._exit(0)  # the JVM's threads need not be waited for
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="bench-large-state-") as work:
        size = Size(
            work=work,
            keys=int(options.gib * (1 << 30) / options.value_bytes),
            value_bytes=options.value_bytes,
            checkpoints=options.checkpoints,
        )
        loads, found = [], {}
        for style in options.styles:
            size = replace(size, style=style)
            for folder in (size.storage, size.source):
                shutil.rmtree(folder, ignore_errors=True)
            loads.append(load(f"checkpoints, {style}"))
            found[style] = phase("checkpoints", size)
            print(json.dumps(found[style]), file=sys.stderr, flush=True)
        loads.append(load("restores"))
        seconds = restores(Path(work), size.storage, options.rounds)
        loads.append(load("rescale in place"))
        found |= phase("rescale", size)
        print(json.dumps(found["pause_ms"]), file=sys.stderr, flush=True)
        check(size)
        if not options.no_spark:
            shutil.rmtree(size.storage)
            loads.append(load("Spark's repartition"))
            found |= phase("spark", size)
    keep(report(clock, size, found, seconds, tuple(loads)), options.result)


def report(clock: Clock, size: Size, found: Mapping[str, Any], seconds: Mapping[str, Sequence[float]], loads: tuple[Any, ...]) -> Result:
    """Ratios, and the figures behind them."""
    changed = size.changed * size.value_bytes
    median = {name: statistics.median(values) for name, values in seconds.items()}
    pause_s = found["pause_ms"] / 1000
    targets, rows = [], []
    for style in (each for each in ("LEVEL", "UNIVERSAL") if each in found):
        full, increments = found[style]["full"], found[style]["increments"]
        uploaded, took = (statistics.mean(each[name] for each in increments) for name in ("uploaded", "ms"))
        smallest, largest = (choose(each["uploaded"] for each in increments) / _MIB for choose in (min, max))
        targets += [
            target(f"{style}: bytes that an incremental checkpoint uploads, by those changed", 3, uploaded / changed, at_least=False),
            target(f"{style}: duration of a full checkpoint, by that of an incremental one", 20, full["ms"] / took, at_least=True),
        ]
        rows += [
            (
                f"{style}: full checkpoint",
                f"{full['ms'] / 1000:.1f} s",
                f"{full['uploaded'] / _MIB:,.0f} MiB uploaded, sync {full['sync_ms']} ms",
            ),
            (
                f"{style}: incremental checkpoint, mean",
                f"{took / 1000:.2f} s",
                f"{uploaded / _MIB:,.1f} MiB uploaded ({smallest:,.0f} - {largest:,.0f}), {changed / _MIB:,.1f} MiB changed",
            ),
            (f"{style}: size of the last checkpoint", "", f"{increments[-1]['size'] / _MIB:,.0f} MiB"),
        ]
    targets += [
        target("speed of a restore from files, by that of `cp`", 0.7, median["cp"] / median["restore, files, 2 to 2"], at_least=True),
        target(
            "pause when rescaled in place, by a restore at equal parallelism",
            2.5,
            pause_s / median["restore, files, 2 to 2"],
            at_least=False,
        ),
    ]
    if "parallel GETs" in median:
        ratio = median["parallel GETs"] / median["restore, S3, 2 to 2"]
        targets.append(target("speed of a restore from S3, by that of parallel GETs", 0.7, ratio, at_least=True))
    rows += [(name, f"{median[name]:.1f} s", f"{min(values):.1f} - {max(values):.1f} s") for name, values in seconds.items()]
    rows.append(("pause when rescaled in place, 2 to 3", f"{pause_s:.1f} s", "to the first batch of the new slots"))
    if "repartition_s" in found:
        targets.append(target("Spark's offline repartition, by our pause", 10, found["repartition_s"] / pause_s, at_least=True))
        rows.append(("Spark's offline repartition, 2 to 3", f"{found['repartition_s']:.1f} s", f"filled in {found['fill_s']:.0f} s"))
    return Result(
        **clock.header(__file__),
        title="Large state: checkpoints, restores, rescales",
        about=(
            f"{size.keys:,} keys with values of {size.value_bytes:,} bytes that do not compress, in 2 slots on RocksDB. A full checkpoint, then "
            f"{size.checkpoints} incremental ones, before each of which {size.changed:,} random keys are written ({_SETTLING} more come before and do not count). Restores and copies of the last one take "
            f"turns, {len(seconds['cp'])} rounds, a process per slot; a restore verifies each file and opens the store. In the end the state held every key, and "
            "of a sample the value written last."
        ),
        loads=loads,
        targets=tuple(targets),
        tables=(Table(columns=("what", "time", ""), rows=tuple(rows)),),
        figures={**found, "seconds": {name: list(values) for name, values in seconds.items()}},
    )


def target(what: str, wanted: float, measured: float, *, at_least: bool) -> Target:
    """A wanted ratio."""
    return Target(what=what, wanted=wanted, measured=measured, unit="x", at_least=at_least)


if __name__ == "__main__":
    main()
