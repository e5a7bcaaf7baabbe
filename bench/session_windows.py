"""Session windows, side by side in one run: this runtime, and Spark's own Python transformWithState with timers.

Each contender runs in a process of its own, in turns, on the same files of one batch each. Rates leave out the first two batches (start of
JVM, Python workers, code generation), and those that begin in the first minute, in which the JVM still compiles on the same cores.
The sessions that each has written must be those that pandas computes.

    .venv/bin/python bench/session_windows.py [--batch 100000] [--batches 90] [--batches-of-spark 8] [--keys 100000] [--rounds 3]
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
from pathlib import Path
from typing import Any

from count_per_key import WARM_UP, few_of, write_events
from machine import Clock, load
from results import Load, Result, Table, Target, arguments_of, keep, spread
from session_contenders import CONTENDERS, OURS, RESULT, TRANSFORM_WITH_STATE
from session_job import GAP_MS

_LIMIT_S = 600
_WANTED = 15.0
"""Of issue 12."""


def run_one(name: str, source: Path, batch: int, warm_up_s: float) -> tuple[float, int]:
    """Run a contender in a process of its own and check its sessions; its rows per second after the warm-up, and the number of sessions."""
    started = time.monotonic()
    command = [sys.executable, str(Path(__file__).with_name("session_contenders.py")), name, str(source)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=_LIMIT_S)
    line = next((line for line in done.stdout.splitlines() if line.startswith(RESULT)), None)
    if line is None:
        raise RuntimeError(f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    outcome: dict[str, Any] = json.loads(line.removeprefix(RESULT))
    if outcome["wrong"] or not outcome["sessions"]:
        raise RuntimeError(f"{name} has {outcome['wrong']:,} wrong sessions among {outcome['sessions']:,}")
    # A batch of ticks or without data has few rows or none.
    steady = steady_batches([entry for entry in outcome["batches"] if entry["rows"] >= batch], warm_up_s)
    rate: float = sum(entry["rows"] for entry in steady) / (sum(entry["ms"] for entry in steady) / 1000)
    print(f"{name}: {rate:,.0f} rows/s; {time.monotonic() - started:.0f} s in all", file=sys.stderr, flush=True)
    return rate, int(outcome["sessions"])


def steady_batches(batches: list[dict[str, Any]], warm_up_s: float) -> list[dict[str, Any]]:
    """Return the batches that begin after the warm-up."""
    ran_s, steady = 0.0, []
    for number, entry in enumerate(batches):
        if number >= WARM_UP and ran_s >= warm_up_s:
            steady.append(entry)
        ran_s += entry["ms"] / 1000
    if not steady:
        raise RuntimeError(f"all {len(batches)} batches belong to the warm-up of {warm_up_s:.0f} s: use more with --batches")
    return steady


def main() -> None:
    """Run both contenders in turns."""
    parser = arguments_of(__doc__)
    parser.add_argument("--batch", type=int, default=100_000, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=90, help="of ours")
    parser.add_argument("--batches-of-spark", type=int, default=8, help="of transformWithState")
    parser.add_argument("--warm-up-s", type=float, default=60.0, help="batches that begin earlier do not count")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    clock = Clock()
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    sessions: dict[str, int] = {}
    loads: list[Load] = []
    folder = Path(tempfile.mkdtemp(prefix="bench-events-"))
    try:
        source = folder / "events"
        write_events(source, batches=options.batches, batch=options.batch, keys=options.keys)
        few = few_of(source, options.batches_of_spark)
        for turn in range(options.rounds):
            for name in CONTENDERS:
                loads.append(load(f"{name} {turn + 1}"))
                rate, sessions[name] = run_one(name, few if name == TRANSFORM_WITH_STATE else source, options.batch, options.warm_up_s)
                rates[name].append(rate)
    finally:
        shutil.rmtree(folder)
    ratios = [ours / theirs for ours, theirs in zip(rates[OURS], rates[TRANSFORM_WITH_STATE], strict=True)]
    rows = tuple((name, f"{statistics.median(each):,.0f}", spread(each), f"{sessions[name]:,}") for name, each in rates.items())
    result = Result(
        **clock.header(__file__),
        title="Session windows",
        about=(
            f"{options.batch * options.batches:,} events over {options.keys:,} keys in batches of {options.batch:,}, sessions with a gap of "
            f"{GAP_MS // 1000} s, counted and written to Parquet; 2 slots or partitions on one machine, RocksDB with changelogs (ours: checkpoints "
            f"every 10 s). transformWithState keeps a session per key with a timer at its end, and gets the first {options.batches_of_spark} batches only. "
            f"{options.rounds} rounds in turns; the rate of a run leaves out its first {WARM_UP} batches and those that begin in its first {options.warm_up_s:.0f} s. "
            "All sessions were right after each run."
        ),
        loads=tuple(loads),
        targets=(
            Target(
                what=f"session windows, rows/s by those of {TRANSFORM_WITH_STATE}",
                wanted=_WANTED,
                measured=statistics.median(ratios),
                unit="x",
                at_least=True,
            ),
        ),
        tables=(Table(columns=("contender", "rows/s, median", "range", "sessions"), rows=rows),),
        notes=(f"Ours by transformWithState, round by round: {spread(ratios, 1)}.",),
        figures={"rows_per_s": rates, "ratios": ratios},
    )
    keep(result, options.result)


if __name__ == "__main__":
    main()
