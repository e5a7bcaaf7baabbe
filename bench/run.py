"""Runs every benchmark, one after the other (they need the machine for themselves), and writes `docs/benchmarks.md`.

make bench
"""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psutil

HERE = Path(__file__).parent
BENCHMARKS = {
    "Count per key": ["count_per_key.py", "--rounds", "3"],
    "Synchronous part of a checkpoint at 1 GiB of state": ["checkpoint_sync.py", "--gib", "1"],
    "Back-pressure: 10 million rows in one batch": ["backpressure.py"],
    "State access": ["state_access.py"],
}


def main() -> None:
    """Run all and keep what they print."""
    machine = f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total >> 30} GiB, Python {platform.python_version()}"
    parts = [f"# Benchmarks\n\nMeasured {datetime.now(UTC):%Y-%m-%d} with `make bench` on {machine}. Read the ratios, not the digits."]
    failed = False
    for title, (script, *arguments) in BENCHMARKS.items():
        print(f"== {title}", flush=True)
        done = subprocess.run([sys.executable, str(HERE / script), *arguments], stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, flush=True)
        failed = failed or done.returncode != 0
        parts.append(f"## {title}\n\n`bench/{script} {' '.join(arguments)}`\n\n```\n{done.stdout.strip()}\n```")
    (HERE.parent / "docs" / "benchmarks.md").write_text("\n\n".join(parts) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
