"""What time to live costs a whole job at steady state: keys that never come back, with the background cleanup, without it, and without time to live.

Each way runs in a process of its own, in turns, on the same files of one batch each. What the cleanup costs is the median of the rounds, each of
which compares runs beside each other: by rows per second, and by the CPU time of all processes of a job, which other work on the machine hardly
changes. Both leave out the batches of the first time to live, in which nothing expires. Afterwards the state in storage is counted.

    .venv/bin/python bench/ttl_throughput.py [--batch 100000] [--batches 30] [--lives-for-s 8] [--rounds 3]
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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from machine import Clock, load
from our_job import run_job
from results import Load, Result, Table, Target, arguments_of, keep, spread

_RESULT = "RESULT "
_LIMIT_S = 600
_WANTED = 10.0
"""Per cent, of issue 12."""
_WARM_UP = 2
"""Batches that are left out whatever they took: start of the JVM and of Python workers."""
CLEANUP, NO_CLEANUP, NEVER = "cleanup", "no-cleanup", "never"
WAYS = {CLEANUP: "time to live", NO_CLEANUP: "time to live, no cleanup", NEVER: "no time to live"}


def write_keys(folder: Path, *, batches: int, batch: int) -> None:
    """A file per batch; no key comes twice."""
    folder.mkdir()
    keys = np.random.default_rng(7).permutation(batches * batch).astype(np.int64)
    for number, part in enumerate(np.split(keys, batches)):
        path = folder / f"{number:04d}.parquet"
        pd.DataFrame({"key": part}).to_parquet(path, index=False)
        # Spark's file source reads files in the order of their modification times.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def contend(way: str, source: Path, lives_for_s: float) -> None:
    """Run one way in this process, and print what its batches took and how many entries are stored."""
    from statefulspark.checkpoint.inspect.reader import read_state

    with tempfile.TemporaryDirectory(prefix="bench-ttl-") as work:
        batches = run_job("seen", "ttl_job.py", [source, way, int(lives_for_s * 1000)], Path(work), with_cpu=True)
        stored = sum(1 for _ in read_state(f"file://{work}/storage/seen", "seen", "seen"))
    print(_RESULT + json.dumps({"batches": batches, "stored": stored}), flush=True)
    os._exit(0)  # the JVM's threads need not be waited for


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one way, after its first one and a half times to live."""

    rate: float
    """Rows per second."""
    cpu_us: float
    """CPU time per row of all processes of the job, in microseconds."""
    stored: int
    """Entries that are stored at the end."""


def run_one(way: str, source: Path, *, batch: int, lives_for_s: float) -> Run:
    """Run one way in a process of its own."""
    started = time.monotonic()
    command = [sys.executable, str(Path(__file__)), "--way", way, "--source", str(source), "--lives-for-s", str(lives_for_s)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=_LIMIT_S)
    line = next((line for line in done.stdout.splitlines() if line.startswith(_RESULT)), None)
    if line is None:
        raise RuntimeError(f"{way} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    outcome: dict[str, Any] = json.loads(line.removeprefix(_RESULT))
    steady: list[dict[str, Any]] = []
    passed_ms = 0.0
    # A batch of ticks has no rows.
    for entry in [entry for entry in outcome["batches"] if entry["rows"] >= batch][_WARM_UP:]:
        if passed_ms > 1.5 * lives_for_s * 1000:
            steady.append(entry)
        passed_ms += entry["ms"]
    if len(steady) < 5:
        raise RuntimeError(f"{way}: only {len(steady)} batches after one and a half times to live; use more batches or a shorter time")
    rate: float = sum(entry["rows"] for entry in steady) / (sum(entry["ms"] for entry in steady) / 1000)
    # The first batch's CPU time is known at its end only.
    cpu_us = (steady[-1]["cpu_s"] - steady[0]["cpu_s"]) / sum(entry["rows"] for entry in steady[1:]) * 1e6
    run = Run(rate, cpu_us, int(outcome["stored"]))
    message = f"{way}: {rate:,.0f} rows/s, {cpu_us:.1f} us CPU per row in {len(steady)} batches, {run.stored:,} stored"
    print(f"{message}; {time.monotonic() - started:.0f} s in all", file=sys.stderr, flush=True)
    return run


def pairs(runs: dict[str, list[Run]], other: str, compared: Callable[[Run, Run], float]) -> list[float]:
    """Compare the run with cleanup of each round with the ``other`` one beside it."""
    return [compared(on, off) for on, off in zip(runs[CLEANUP], runs[other], strict=True)]


def main() -> None:
    """Run all ways in turns."""
    parser = arguments_of(__doc__)
    parser.add_argument("--batch", type=int, default=100_000, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--lives-for-s", type=float, default=8.0, help="time to live")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=list(WAYS), help="internal: run one way in this process")
    parser.add_argument("--source", type=Path, help="internal")
    options = parser.parse_args()
    if options.way is not None:
        contend(options.way, options.source, options.lives_for_s)
    clock = Clock()
    runs: dict[str, list[Run]] = {way: [] for way in WAYS}
    loads: list[Load] = []
    folder = Path(tempfile.mkdtemp(prefix="bench-keys-"))
    try:
        source = folder / "keys"
        write_keys(source, batches=options.batches, batch=options.batch)
        for turn in range(options.rounds):
            # Backwards every other time: what a run leaves in caches, or a machine that gets slower, favours no way.
            for way in list(WAYS)[:: -1 if turn % 2 else 1]:
                loads.append(load(f"{way} {turn + 1}"))
                runs[way].append(run_one(way, source, batch=options.batch, lives_for_s=options.lives_for_s))
    finally:
        shutil.rmtree(folder)
    lost = pairs(runs, NO_CLEANUP, lambda on, off: 100 * (1 - on.rate / off.rate))
    cpu = pairs(runs, NO_CLEANUP, lambda on, off: 100 * (1 - off.cpu_us / on.cpu_us))
    against_never = pairs(runs, NEVER, lambda on, off: 100 * (1 - on.rate / off.rate))
    rows = tuple(
        (
            WAYS[way],
            f"{statistics.median(run.rate for run in each):,.0f}",
            spread([run.rate for run in each]),
            f"{statistics.median(run.cpu_us for run in each):.1f}",
            spread([run.cpu_us for run in each], 1),
            f"{max(run.stored for run in each):,}",
        )
        for way, each in runs.items()
    )
    result = Result(
        **clock.header(__file__),
        title="Time to live",
        about=(
            f"{options.batch * options.batches:,} keys that never come back, in batches of {options.batch:,} as fast as they go, one value "
            f"per key that lives for {options.lives_for_s:g} s; 2 slots on one machine, RocksDB with changelogs and a checkpoint every 10 s. "
            f"{options.rounds} rounds, every other one backwards; a run leaves out its first one and a half times to live."
        ),
        loads=tuple(loads),
        targets=(
            Target(
                what="throughput that the cleanup costs",
                wanted=_WANTED,
                measured=statistics.median(lost),
                unit="%",
                at_least=False,
            ),
            Target(
                what="share of the CPU time that the cleanup takes",
                wanted=_WANTED,
                measured=statistics.median(cpu),
                unit="%",
                at_least=False,
            ),
        ),
        tables=(
            Table(
                columns=("state", "rows/s, median", "range", "CPU us per row, median", "range", "entries stored at the end, at most"),
                rows=rows,
            ),
        ),
        notes=(
            f"Per cent of throughput that the cleanup costs, round by round: {spread(lost, 1)}; of CPU time: {spread(cpu, 1)}.",
            f"Per cent of throughput that time to live costs with its cleanup, round by round: {spread(against_never, 1)}.",
        ),
        figures={way: [asdict(run) for run in each] for way, each in runs.items()},
    )
    keep(result, options.result)


if __name__ == "__main__":
    main()
