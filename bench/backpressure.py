"""Ten million rows in one batch to two slots: how much memory the slots take, by samples of their processes.

Rows come in falling event-time order within the batch, so nothing is processed before the whole batch has been sorted. The slots have the
default budgets and 1 GiB each is what they must stay below.

    .venv/bin/python bench/backpressure.py [--rows 10000000] [--keys 1000000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow.dataset as ds

LIMIT_BYTES = 1 << 30
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


def run(folder: Path) -> tuple[dict[int, int], float]:
    """Run the job to its end; peak memory of each slot's process in bytes, and the seconds it took."""
    (folder / "job.yaml").write_text(_MANIFEST.format(script=Path(__file__).resolve(), folder=folder))
    environment = os.environ | {"STATEFULSPARK_HOME": str(folder / "home"), "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "statefulspark.cli.main", "run", str(folder / "job.yaml"), "--until-idle", "--no-progress"]
    peaks: dict[int, int] = {}
    started = time.monotonic()
    with (folder / "log").open("wb") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        while process.poll() is None:
            for pid in slots_of(folder / "home"):
                try:
                    peaks[pid] = max(peaks.get(pid, 0), psutil.Process(pid).memory_info().rss)
                except psutil.Error:
                    continue
            time.sleep(0.1)
    if process.returncode != 0:
        sys.exit((folder / "log").read_text()[-4000:])
    return peaks, time.monotonic() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="backpressure-") as name:
        folder = Path(name)
        write_rows(folder / "in", options.rows, options.keys)
        peaks, seconds = run(folder)
        given = ds.dataset(folder / "out", format="parquet", ignore_prefixes=["_", "."]).count_rows()
    if given != options.rows:
        sys.exit(f"FAILED: {given:,} rows came out of {options.rows:,}")
    print(f"{options.rows:,} rows in one batch over {options.keys:,} keys: {seconds:.0f} s in all, start included")
    for number, peak in enumerate(peaks.values()):
        print(f"slot process {number}: peak RSS {peak / (1 << 20):,.0f} MiB of {LIMIT_BYTES >> 20:,} MiB")
    if not peaks or max(peaks.values()) > LIMIT_BYTES:
        sys.exit("FAILED: a slot took more than its limit, or none was seen")


if __name__ == "__main__":
    main()
