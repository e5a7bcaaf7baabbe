"""What the processes of a job take: the figures behind `statefulspark.memory.baselines`.

    .venv/bin/python bench/process_memory.py [--rows N] [--heap-mib N] [--steps N]

One executor of its own (``local-cluster``) with two slots and two exchange tasks counts per key. JVMs touch their whole heap when they
start, so what they hold above it is their overhead. Python processes are measured by USS, what would be free if they ended, because they are
forked from one daemon and share pages. For each kind of process: what it takes before the first row, and its peak.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

_MIB = 1 << 20
_DAEMON = "daemon pyspark."
"""In the command of PySpark's daemon and of ours, and of the workers that they fork; a JVM names ours in a setting."""


def pipeline(job: Any) -> Any:
    """Numbers the rows of each key; chained steps when told."""
    from statefulspark import KeyedProcessFunction, Types, ValueStateDescriptor

    class Count(KeyedProcessFunction):
        """Numbers the rows of a key."""

        def open(self, runtime_context: Any) -> None:
            """Get the state."""
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

        def process_element(self, value: Any, ctx: Any) -> Any:
            """One more."""
            self.count.update((self.count.value() or 0) + 1)
            yield ctx.get_current_key(), self.count.value(), value.payload

    stream = job.spark.readStream.option("maxFilesPerTrigger", 2)
    rows = stream.schema("key string, number bigint, payload string").parquet(job.args[0])
    for step in range(int(job.args[2])):
        rows = job.key_by(rows, "key").process(Count(), "key string, number bigint, payload string", uid=f"count-{step}")
    return rows.writeStream.format("parquet").option("path", job.args[1])


def write_rows(folder: Path, rows: int, keys: int, files: int) -> None:
    """Files of rows with 100 bytes of payload."""
    import numpy as np
    import pandas as pd

    folder.mkdir()
    chance = np.random.default_rng(1)
    size = rows // files
    payload = [f"{n:0100d}" for n in range(size)]
    for number in range(files):
        columns = {"key": chance.integers(0, keys, size).astype("str"), "number": np.arange(size), "payload": payload}
        pd.DataFrame(columns).to_parquet(folder / f"{number:04d}.parquet", index=False)


class Watch(threading.Thread):
    """Samples every process below this one."""

    def __init__(self, job: Any) -> None:
        super().__init__(daemon=True)
        self._job = job
        self.done = threading.Event()
        self.first: dict[tuple[str, int], tuple[int, int, int]] = {}
        self.peak: dict[tuple[str, int], tuple[int, int, int]] = {}

    def run(self) -> None:
        """Until done."""
        while not self.done.wait(0.2):
            slots = {slot.pid for slot in self._job.status().slots if slot.state == "RUNNING"}
            me = psutil.Process()
            for process in (me, *me.children(recursive=True)):
                try:
                    kind = self._kind(process, me.pid, slots)
                    full = process.memory_full_info()
                except psutil.Error:
                    continue
                if kind:
                    size = (full.rss, full.pss, full.uss)
                    key = (kind, process.pid)
                    self.first.setdefault(key, size)
                    self.peak[key] = tuple(map(max, size, self.peak.get(key, size)))  # type: ignore[assignment]  # three numbers each

    @staticmethod
    def _kind(process: psutil.Process, me: int, slots: set[int]) -> str | None:
        command = " ".join(process.cmdline())
        if process.pid == me:
            return "driver: Python"
        if "CoarseGrainedExecutorBackend" in command:
            return "executor: JVM"
        if "SparkSubmit" in command or "py4j" in command:
            return "driver: JVM"
        if _DAEMON not in command:
            return None
        above = [" ".join(parent.cmdline()) for parent in process.parents()]
        where = "executor" if any("CoarseGrainedExecutorBackend" in each for each in above) else "driver"
        if _DAEMON not in above[0]:
            return f"{where}: daemon"
        return "executor: slot" if process.pid in slots else f"{where}: Python worker"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=20, help="two of them are a batch")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--heap-mib", type=int, default=512)
    parser.add_argument("--slot-mib", type=int, default=352)
    parser.add_argument("--java-options", default="-XX:+UseSerialGC", help="the JVM's own choice in pods with one CPU or below 1792Mi")
    parser.add_argument("--managed-mib", type=int, default=32)
    arguments = parser.parse_args()
    from statefulspark.config.manifest import validate_job
    from statefulspark.job.start.start_job import RunOptions, start_job

    work = Path(tempfile.mkdtemp(prefix="process-memory-"))
    # In a process of its own, so that it leaves nothing behind in the one that is measured.
    writer = multiprocessing.get_context("spawn").Process(
        target=write_rows, args=(work / "in", arguments.rows, arguments.keys, arguments.files)
    )
    writer.start()
    writer.join()
    touch = f"-Xms{arguments.heap_mib}m -XX:+AlwaysPreTouch {arguments.java_options}"
    parts = {"heap": f"{arguments.heap_mib}Mi"}
    manifest = validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "process-memory"},
            "spec": {
                "job": {"script": str(Path(__file__).resolve()), "args": [str(work / "in"), str(work / "out"), str(arguments.steps)]},
                "parallelism": 2,
                "driver": {"memoryParts": parts},
                "executor": {
                    "slots": 2,
                    "exchangeTasks": 2,
                    "memoryParts": parts | {"pythonPerSlot": f"{arguments.slot_mib}Mi"},
                    "managedMemory": {"size": f"{arguments.managed_mib}Mi"},
                },
                "checkpointing": {"dir": f"file://{work}/storage", "interval": "5s"},
                "sparkConf": {
                    "spark.master": f"local-cluster[1,4,{arguments.heap_mib}]",
                    "spark.executor.extraJavaOptions": touch,
                    "spark.driver.extraJavaOptions": touch,
                },
            },
        }
    )
    console = Console(width=140)
    console.print(manifest.spec.memory_plan().executor.spelled_out(), soft_wrap=True)
    job = start_job(manifest, RunOptions(until_idle=True))
    watch = Watch(job)
    watch.start()
    while not job.wait(0.5).final:
        pass
    watch.done.set()
    watch.join(5)
    table = Table("process", "MiB at first: RSS / PSS / USS", "peak: RSS / PSS / USS", "peak RSS above the heap")
    for (kind, pid), peak in sorted(watch.peak.items()):
        first = watch.first[(kind, pid)]
        above = f"{peak[0] / _MIB - arguments.heap_mib:.0f}" if "JVM" in kind else ""
        table.add_row(kind, *(" / ".join(f"{value / _MIB:.0f}" for value in sizes) for sizes in (first, peak)), above)
    console.print(job.status().error or "", table)
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
