"""Soak of managed memory: does the resident memory of a slot stay within its budget, whatever is written?

2 slots with 50 states each; 20 GiB written through random updates and scans of small and large values, with batches that spill and a checkpoint
every minute. Each slot is the runtime's own slot process. Its resident memory (VmRSS, sampled from outside every 200 ms, and the kernel's
own peak VmHWM) minus that of the same process with the same batches and no store must not exceed the managed memory by more than a tenth.

    .venv/bin/python bench/memory_soak.py [--managed 128Mi 64Mi 1Gi] [--written 20Gi] [--together]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from soak.job import SoakSettings
from soak.measure import TOLERANCE, Soak, soak

from statefulspark.exchange.allocator import allocator_environment
from statefulspark.sizes import format_size, parse_size

REPOSITORY = Path(__file__).resolve().parents[1]
MIB = 1 << 20
GIB = 1 << 30


def main() -> None:
    """Run all budgets, each in a process of its own, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--managed", nargs="+", default=["128Mi", "64Mi", "1Gi"], help="managed memory of a slot")
    parser.add_argument("--written", default="20Gi", help="state written per budget, all slots together")
    parser.add_argument("--baseline-written", default="6Gi", help="state written by the slots without a store")
    parser.add_argument("--keys", type=int, default=4000, help="about 600 KiB of live state each")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop a soak after this time with less written")
    parser.add_argument("--together", action="store_true", help="all budgets at once: memory does not depend on the machine's load")
    parser.add_argument("--uncontrolled", action="store_true", help="leave malloc as the C library has it")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "out" / "bench" / "memory-soak")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.one:
        run_one(arguments, arguments.managed[0])
        return
    running = []
    for managed in arguments.managed:
        command = [sys.executable, __file__, *sys.argv[1:], "--one", "--managed", managed]
        running.append(subprocess.Popen(command, cwd=REPOSITORY))
        if not arguments.together:
            running[-1].wait()
    codes = [process.wait() for process in running]
    if any(codes):
        sys.exit(1)
    results = [Soak.load(arguments.output / f"{managed}.json") for managed in arguments.managed]
    report(results)
    plot(results, arguments.output / "memory-soak.png")
    sys.exit(not all(result.holds for result in results))


def run_one(arguments: argparse.Namespace, managed: str) -> None:
    """Run one budget and keep the result."""
    settings = SoakSettings(
        managed_bytes=parse_size(managed),
        written_bytes=parse_size(arguments.written),
        seconds_max=arguments.minutes * 60,
        slots=arguments.slots,
        keys=arguments.keys,
        environment={} if arguments.uncontrolled else allocator_environment(),
    )
    with tempfile.TemporaryDirectory(prefix="memory-soak-") as work:
        result = soak(settings, Path(work), baseline_bytes=parse_size(arguments.baseline_written))
    result.save(arguments.output / f"{managed}.json")
    print(f"{managed}: {result.soak.written_bytes / GIB:.1f} GiB in {result.soak.seconds:.0f} s", flush=True)


def report(results: list[Soak]) -> None:
    """Print what was found."""
    table = Table(
        "managed", "written GiB", "MiB/s", "checkpoints", "Python MiB", "peak MiB", "native peak MiB", "of the budget", "median", ""
    )
    for result in results:
        run = result.soak
        table.add_row(
            format_size(result.managed_bytes),
            f"{run.written_bytes / GIB:.1f}",
            f"{run.written_bytes / MIB / run.seconds:.0f}",
            str(run.checkpoints),
            f"{result.baseline_bytes / MIB:.0f}",
            f"{max(run.peak_bytes) / MIB:.0f}",
            f"{result.native_bytes / MIB:.1f}",
            f"{result.native_bytes / result.managed_bytes:.1%}",
            f"{(max(run.median_bytes) - max(result.baseline.median_bytes)) / result.managed_bytes:.1%}",
            "holds" if result.holds else "BROKEN",
        )
    Console(width=150).print(table)


def plot(results: list[Soak], path: Path) -> None:
    """Draw the curves."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(5 * len(results), 3.6), squeeze=False)
    for axis, result in zip(axes[0], results, strict=True):
        for slot, curve in enumerate(result.soak.curves):
            axis.plot([at / GIB for at, _ in curve], [size / MIB for _, size in curve], linewidth=0.6, label=f"slot {slot}")
        baseline = result.baseline_bytes / MIB
        budget = result.managed_bytes / MIB
        axis.axhline(baseline, color="grey", linewidth=1, linestyle="--", label="Python alone (peak)")
        axis.axhline(baseline + budget, color="black", linewidth=1, linestyle=":", label="+ managed memory")
        axis.axhline(baseline + budget * (1 + TOLERANCE), color="red", linewidth=1, label=f"+ {TOLERANCE:.0%}")
        axis.set_title(f"{format_size(result.managed_bytes)} managed: native peak {result.native_bytes / MIB:.0f} MiB")
        axis.set_xlabel("GiB written")
        axis.set_ylabel("RSS, MiB")
        axis.set_ylim(bottom=0)
    axes[0][0].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
