"""Runs benchmarks one after the other (they need the machine for themselves) and takes their sections into `docs/benchmarks.md`.

    make bench                              the standard ones, at full size: about 12 minutes on 2 idle cores
    .venv/bin/python bench/run.py --list    all there are
    .venv/bin/python bench/run.py count_per_key state_access
    .venv/bin/python bench/run.py --small   proves in 3 minutes that all of them work; the documentation is left alone

Results are kept as JSON, with their pictures, in `out/bench/`, small ones in `out/bench/small/`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import document
from machine import ROOT
from results import from_json

_DOCUMENT = ROOT / "docs" / "benchmarks.md"
_PICTURES = "images"
"""Below the document's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A script of this folder."""

    small: tuple[str, ...]
    """Options with which it ends soon."""
    full: tuple[str, ...] = ()
    limit_s: int = 900
    """It is ended after this time."""
    standard: bool = True
    """Whether `make bench` runs it."""


BENCHES = {
    "count_per_key": Bench(small=("--batch", "20000", "--keys", "20000", "--rounds", "1"), limit_s=1500),
    "session_windows": Bench(
        small=("--batch", "20000", "--keys", "20000", "--batches", "4", "--rounds", "1", "--warm-up-s", "0"), limit_s=1500
    ),
    "ttl_throughput": Bench(small=("--batch", "20000", "--batches", "40", "--lives-for-s", "3", "--rounds", "1"), limit_s=1800),
    "checkpoint_sync": Bench(small=("--gib", "0.05", "--updates", "3")),
    "backpressure": Bench(small=("--rows", "1000000", "--keys", "100000")),
    "at_least_once": Bench(small=("--small", "500", "--large", "5000", "--batches", "16", "--delays", "0", "--rounds", "1"), limit_s=1800),
    "state_access": Bench(small=("--keys", "20000", "--rounds", "2")),
    "list_appends": Bench(small=("--keys", "5", "--batches", "20", "--long", "10000")),
    "pending_timers": Bench(small=("--due", "1000", "--pending", "5000", "20000")),
    "state_tables": Bench(small=("--entries", "20000", "--rounds", "1")),
    "large_state": Bench(small=("--gib", "0.1", "--checkpoints", "3", "--rounds", "1", "--no-spark"), limit_s=3600, standard=False),
    "canonical_savepoints": Bench(small=("--entries", "20000", "--rounds", "1"), standard=False),
    "native_metrics": Bench(small=("--keys", "20000", "--repetitions", "3")),
    "memory_soak": Bench(
        small=("--managed", "64Mi", "--written", "300Mi", "--baseline-written", "200Mi", "--output", "out/bench/small/memory-soak"),
        full=("--together",),
        limit_s=4 * 3600,
        standard=False,
    ),
    # Needs an API server, so it is asked for by name, inside of the test cluster.
    "operator_scale": Bench(small=("--jobs", "20", "--settle-s", "5", "--steady-s", "20", "--changes", "10"), limit_s=1800, standard=False),
}


def main() -> None:
    """Run what was asked for; the exit code says whether all ran to their end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="benchmarks; without any, the standard ones")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, bench in BENCHES.items():
            print(f"{name}{'' if bench.standard else '   (not in make bench)'}")
        return
    if unknown := set(options.names) - set(BENCHES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; see --list")
    chosen = options.names or [name for name, bench in BENCHES.items() if bench.standard]
    failed = [name for name in chosen if not run(name, small=options.small)]
    if failed:
        sys.exit(f"FAILED: {', '.join(failed)}")


def run(name: str, *, small: bool) -> bool:
    """Run one; True when it left a result."""
    bench = BENCHES[name]
    kept = ROOT / "out" / "bench" / ("small" if small else "") / f"{name}.json"
    kept.unlink(missing_ok=True)
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--result", str(kept), *(bench.small if small else bench.full)]
    print(f"== {name}", flush=True)
    code = _ended(command, bench.limit_s)
    if code != 0 or not kept.exists():
        print(f"{name} ended with {code}" if code is not None else f"{name} took more than {bench.limit_s} s", file=sys.stderr)
        return False
    if not small:
        take_in(kept)
    return True


def _ended(command: list[str], limit_s: int) -> int | None:
    """Exit code of a command, None when it took too long; nothing that it started lives on."""
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def take_in(kept: Path) -> None:
    """Put a kept result into the documentation."""
    result = from_json(kept.read_text())
    if result.plot is not None:
        pictures = _DOCUMENT.parent / _PICTURES
        pictures.mkdir(exist_ok=True)
        shutil.copy(kept.parent / result.plot, pictures / result.plot)
    document.update(_DOCUMENT, result, pictures=_PICTURES)
    print(f"{_DOCUMENT.relative_to(ROOT)}: {result.title}", flush=True)


if __name__ == "__main__":
    main()
