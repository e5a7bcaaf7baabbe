"""``python -m e2e.report``: the times that ``make e2e`` measured, as a section of docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import document
from machine import commit, describe
from results import Result, Table, Target

from e2e.harness.images import OUT
from e2e.harness.providers import ROOT
from e2e.harness.timeouts import TARGETS
from e2e.harness.times import TIMES, read

ABOUT: Final = (
    "Measured by the end-to-end tests on a real cluster of one node, with the image built from the Dockerfile and the chart installed by "
    "Helm: a counting job with 2 slots in 2 executor pods, one batch a second, RocksDB, checkpoints every 5 s in S3. A pause in output is "
    "the longest time between two batches that had not been seen before; 1 s of it is the distance of two batches when nothing happens. "
    "Pods are scheduled and images are there; a cluster that must pull them first takes so much longer. All output was right."
)


def result(times: dict[str, dict[str, Any]]) -> Result:
    """The section's contents."""
    names = sorted(times, key=lambda name: (name not in TARGETS, name))
    rows = tuple(
        (name, f"{times[name]['seconds']:.1f}", f"{times[name]['stateBytes'] / 1e6:,.0f}", times[name]["about"], str(times[name]["load1m"]))
        for name in names
    )
    targets = tuple(
        Target(what=name, wanted=TARGETS[name], measured=times[name]["seconds"], unit="s", at_least=False)
        for name in names
        if name in TARGETS
    )
    return Result(
        name="end_to_end",
        title="End to end: pauses on Kubernetes",
        about=ABOUT,
        command="make e2e",
        started=min(each["at"] for each in times.values()),
        seconds=sum(each["seconds"] for each in times.values()),
        machine=describe(),
        commit=commit(),
        loads=(),
        targets=targets,
        tables=(Table(columns=("what", "seconds", "state MB", "measured", "load"), rows=rows),),
        figures=times,
    )


def main() -> None:
    """Replace the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=Path, default=TIMES)
    times = read(parser.parse_args().times)
    if not times:
        sys.exit(f"nothing was measured: {OUT.relative_to(ROOT)}/times.json is not there. Run make e2e first")
    document.update(ROOT / "docs" / "benchmarks.md", result(times), pictures="images")


if __name__ == "__main__":
    main()
