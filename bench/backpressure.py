"""Ten million rows in one batch to two slots: how much memory the slots take, by samples of their processes.

Rows come in falling event-time order within the batch, so nothing is processed before the whole batch has been sorted. The slots have the
default budgets and 1 GiB each is what they must stay below.

    .venv/bin/python bench/backpressure.py [--rows 10000000] [--keys 1000000]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plots
import psutil
import pyarrow.dataset as ds
from machine import Clock, load
from results import Result, Table, Target, arguments_of, keep

MIB = 1 << 20
LIMIT_MIB = 1024.0
_FILE_ROWS = 500_000
_MANIFEST = """
apiVersion: statefulspark.io/v1alpha1
kind: StatefulSparkJob
metadata: {{name: backpressure}}
spec:
  job: {{script: {script}, args: ["{folder}/in", "{folder}/out"]}}
  parallelism: 2
  driver: {{memory: 2Gi}}
  checkpointing: {{dir: "file://{folder}/storage", interval: 1h}}
"""


def pipeline(job: Any) -> Any:
    """Count per key; all files are one batch."""
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

    rows = job.spark.readStream.schema("key string, at timestamp, payload string").parquet(job.args[0])
    counted = job.key_by(rows, "key").process(Count(), "key string, count bigint, payload string", uid="count", event_time="at")
    return counted.writeStream.format("parquet").option("path", job.args[1])


def write_rows(folder: Path, rows: int, keys: int) -> None:
    """Files of wide rows in falling event-time order."""
    folder.mkdir()
    chance = np.random.default_rng(1)
    payload = [f"{n:0100d}" for n in range(_FILE_ROWS)]
    for first in range(0, rows, _FILE_ROWS):
        size = min(_FILE_ROWS, rows - first)
        at = pd.Timestamp("2026-06-01") - pd.to_timedelta(np.arange(first, first + size), unit="ms")
        columns = {
            "key": chance.integers(0, keys, size).astype("str"),
            "at": pd.Series(at).astype("datetime64[us]"),
            "payload": payload[:size],
        }
        pd.DataFrame(columns).to_parquet(folder / f"{first:010d}.parquet", index=False)


def slots_of(home: Path) -> list[int]:
    """Process ids of the running job's slots; none while it cannot be asked."""
    try:
        connection = json.loads((home / "jobs" / "backpressure.json").read_text())
        request = urllib.request.Request(connection["url"] + "/v1/status", headers={"Authorization": "Bearer " + connection["token"]})  # noqa: S310  loopback
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310  loopback
            return [slot["pid"] for slot in json.load(answer)["slots"] if slot["state"] == "RUNNING" and slot["pid"]]
    except (OSError, ValueError):
        return []


Samples = dict[int, list[tuple[float, float]]]
"""By process id of a slot: seconds since the start, and resident memory in MiB."""


def run(folder: Path) -> tuple[Samples, float]:
    """Run the job to its end; memory of each slot's process, and the seconds it took."""
    (folder / "job.yaml").write_text(_MANIFEST.format(script=Path(__file__).resolve(), folder=folder))
    environment = os.environ | {"STATEFULSPARK_HOME": str(folder / "home"), "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "statefulspark.cli.main", "run", str(folder / "job.yaml"), "--until-idle", "--no-progress"]
    samples: Samples = {}
    started = time.monotonic()
    with (folder / "log").open("wb") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        while process.poll() is None:
            for pid in slots_of(folder / "home"):
                with suppress(psutil.Error):
                    samples.setdefault(pid, []).append((time.monotonic() - started, psutil.Process(pid).memory_info().rss / MIB))
            time.sleep(0.1)
    if process.returncode != 0:
        sys.exit((folder / "log").read_text()[-4000:])
    return samples, time.monotonic() - started


def main() -> None:
    """Measure and print."""
    parser = arguments_of(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args()
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="bench-backpressure-") as name:
        folder = Path(name)
        write_rows(folder / "in", options.rows, options.keys)
        loads = (load("the run"),)
        samples, seconds = run(folder)
        given = ds.dataset(folder / "out", format="parquet", ignore_prefixes=["_", "."]).count_rows()
    if given != options.rows:
        sys.exit(f"FAILED: {given:,} rows came out of {options.rows:,}")
    if not samples:
        sys.exit("FAILED: no slot was seen")
    named = {f"slot process {number}": points for number, points in enumerate(samples.values(), 1)}
    peaks = {slot: max(mib for _, mib in points) for slot, points in named.items()}
    plot = None
    if options.result is not None:
        plot = "bench-backpressure.png"
        plots.lines(
            options.result.with_name(plot), named, across="seconds since the start", up="resident memory, MiB", bound=("limit", LIMIT_MIB)
        )
    result = Result(
        **clock.header(__file__),
        title=f"Back-pressure: {options.rows:,} rows in one batch",
        about=(
            f"{options.rows:,} rows of 100 bytes and more over {options.keys:,} keys in one batch to 2 slots with the default budgets, in falling "
            "event-time order, so that nothing is processed before all of it is sorted. Each row came out. Memory is sampled about "
            "ten times a second."
        ),
        loads=loads,
        targets=(Target(what="peak memory of a slot", wanted=LIMIT_MIB, measured=max(peaks.values()), unit="MiB", at_least=False),),
        tables=(
            Table(
                columns=("slot", "peak RSS MiB"),
                rows=tuple((slot, f"{peak:,.0f}") for slot, peak in peaks.items()),
            ),
        ),
        notes=(f"The whole run took {seconds:.0f} s, start of the job included.",),
        figures={"peak_mib": list(peaks.values()), "run_s": seconds},
        plot=plot,
    )
    keep(result, options.result)


if __name__ == "__main__":
    main()
