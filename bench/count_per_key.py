"""Count per key, side by side in one run: this runtime, Spark's own JVM aggregation, Spark's own Python transformWithState.

Each contender runs in a process of its own, in turns, on the same files of one batch each. Rates leave out the first two batches (start of
JVM, Python workers, code generation). The state that each ends with must be what Arrow counts.

    .venv/bin/python bench/count_per_key.py [--batch 100000] [--batches 10] [--keys 100000] [--rounds 3]
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

import numpy as np
import pandas as pd
import plots
from count_contenders import AGGREGATION, CONTENDERS, OURS, RESULT, TRANSFORM_WITH_STATE
from machine import Clock, load
from results import Load, Result, Table, Target, arguments_of, keep, spread

WARM_UP = 2
_FEW_BATCHES = WARM_UP + 1
"""Batches of transformWithState, which takes a quarter of a minute for each."""
_LIMIT_S = 300


def write_events(folder: Path, *, batches: int, batch: int, keys: int) -> None:
    """A file per batch, in event-time order."""
    folder.mkdir()
    random = np.random.default_rng(7)
    start = pd.Timestamp("2026-01-01")
    for number in range(batches):
        at = start + pd.to_timedelta(np.arange(batch) + number * batch, unit="ms")
        frame = pd.DataFrame(
            {
                "key": [f"key-{n:06d}" for n in random.integers(0, keys, batch)],
                "at": pd.Series(at).astype("datetime64[us]"),
                "amount": random.integers(0, 100, batch),
            }
        )
        path = folder / f"events-{number:04d}.parquet"
        frame.to_parquet(path, index=False)
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes files in order of their times


def few_of(source: Path, files: int = _FEW_BATCHES) -> Path:
    """A folder with the first files only."""
    folder = source.with_name("few")
    folder.mkdir()
    for path in sorted(source.iterdir())[:files]:
        os.link(path, folder / path.name)
    return folder


def run_one(name: str, source: Path, batch: int) -> float:
    """Run a contender in a process of its own and check what it counted; its rows per second after the warm-up."""
    started = time.monotonic()
    command = [sys.executable, str(Path(__file__).with_name("count_contenders.py")), name, str(source)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=_LIMIT_S)
    line = next((line for line in done.stdout.splitlines() if line.startswith(RESULT)), None)
    if line is None:
        raise RuntimeError(f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    outcome: dict[str, Any] = json.loads(line.removeprefix(RESULT))
    if outcome["wrong"] or not outcome["keys"]:
        raise RuntimeError(f"{name} counted {outcome['wrong']:,} of {outcome['keys']:,} keys wrong")
    # A batch of ticks or without data has few rows or none.
    steady = [entry for entry in outcome["batches"] if entry["rows"] >= batch][WARM_UP:]
    rate: float = sum(entry["rows"] for entry in steady) / (sum(entry["ms"] for entry in steady) / 1000)
    print(f"{name}: {rate:,.0f} rows/s; {time.monotonic() - started:.0f} s in all", file=sys.stderr, flush=True)
    return rate


def main() -> None:
    """Run all contenders in turns."""
    parser = arguments_of(__doc__)
    parser.add_argument("--batch", type=int, default=100_000, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=10, help=f"more than {WARM_UP}")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="comma-separated beginnings of contenders' names")
    options = parser.parse_args()
    clock = Clock()
    chosen = [name for name in CONTENDERS if not options.only or name.startswith(tuple(options.only.split(",")))]
    rates: dict[str, list[float]] = {name: [] for name in chosen}
    loads: list[Load] = []
    folder = Path(tempfile.mkdtemp(prefix="bench-events-"))
    try:
        source = folder / "events"
        write_events(source, batches=options.batches, batch=options.batch, keys=options.keys)
        few = few_of(source)
        for turn in range(options.rounds):
            for name in chosen:
                loads.append(load(f"{name} {turn + 1}"))
                rates[name].append(run_one(name, few if name == TRANSFORM_WITH_STATE else source, options.batch))
    finally:
        shutil.rmtree(folder)
    plot = None
    if options.result is not None:
        plot = "bench-count-per-key.png"
        plots.bars(options.result.with_name(plot), rates, label="rows per second")
    result = Result(
        **clock.header(__file__),
        title="Count per key",
        about=_about(options.batch, options.batches, options.keys, options.rounds),
        loads=tuple(loads),
        targets=targets(rates),
        tables=(table(rates),),
        figures={"rows_per_s": rates},
        plot=plot,
    )
    keep(result, options.result)


def _about(batch: int, batches: int, keys: int, rounds: int) -> str:
    return (
        f"{batch * batches:,} events over {keys:,} keys in batches of {batch:,}, 2 slots or partitions on one machine, RocksDB with "
        f"changelogs (ours: checkpoints every 10 s), nothing done with the results. transformWithState gets the first "
        f"{batch * _FEW_BATCHES:,} events only. {rounds} rounds in turns; the rate of a run leaves out its first {WARM_UP} batches. "
        "After each run the state was read and was right for every key."
    )


def ratios(rates: dict[str, list[float]], other: str) -> list[float]:
    """Ours by the other's rate, round by round: what slows the machine for a while slows both."""
    return [ours / theirs for ours, theirs in zip(rates[OURS], rates[other], strict=True)]


def targets(rates: dict[str, list[float]]) -> tuple[Target, ...]:
    """Of issue 2."""
    wanted = {AGGREGATION: 1.0, TRANSFORM_WITH_STATE: 25.0}
    if OURS not in rates:
        return ()
    return tuple(
        Target(what=f"rows/s by those of {other}", wanted=least, measured=statistics.median(ratios(rates, other)), unit="x", at_least=True)
        for other, least in wanted.items()
        if other in rates
    )


def table(rates: dict[str, list[float]]) -> Table:
    """Medians, ranges and ratios."""
    rows = []
    for name, values in rates.items():
        found = ratios(rates, name) if OURS in rates and name != OURS else []
        compared = (f"{statistics.median(found):.2f} x", spread(found, 2)) if found else ("", "")
        rows.append((name, f"{statistics.median(values):,.0f}", spread(values), *compared))
    return Table(columns=("contender", "rows/s, median", "range", "ours by it, median of rounds", "range"), rows=tuple(rows))


if __name__ == "__main__":
    main()
