"""Soak of managed memory: does the resident memory of a slot stay within its budget, whatever is written?

2 slots with 50 states each; 20 GiB written through random updates and scans of small and large values, with batches that spill and a checkpoint
every minute, each of which keeps the store for 2 s at least. Each slot is the runtime's own slot process. Its resident memory (VmRSS, sampled from outside every 200 ms, and the kernel's
own peak VmHWM) minus that of the same process with the same batches and no store must not exceed the managed memory by more than a tenth.

    make soak                                                               all three budgets, into docs/benchmarks.md
    .venv/bin/python bench/memory_soak.py --managed 64Mi --written 2Gi      one, printed
    .venv/bin/python bench/memory_soak.py --kept --result out/bench/memory_soak.json    reports what earlier runs left, runs nothing
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import ROOT, Clock, load
from results import Load, Result, Table, Target, arguments_of, keep
from soak.job import SoakSettings
from soak.measure import TOLERANCE, Soak, soak

from statefulspark.sizes import format_size, parse_size
from statefulspark.slot.allocator import allocator_environment

MIB = 1 << 20
GIB = 1 << 30
PLOT = "memory-soak.png"


def main() -> None:
    """Run all budgets, each in a process of its own, and report."""
    parser = arguments_of(__doc__)
    parser.add_argument("--managed", nargs="+", default=["64Mi", "128Mi", "1Gi"], help="managed memory of a slot")
    parser.add_argument("--written", default="20Gi", help="state written per budget, all slots together")
    parser.add_argument("--baseline-written", default="4Gi", help="state written by the slots without a store")
    parser.add_argument("--keys", type=int, default=4000, help="about 600 KiB of live state each")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop a soak after this time with less written")
    parser.add_argument("--together", action="store_true", help="all budgets at once: memory does not depend on the machine's load")
    parser.add_argument("--uncontrolled", action="store_true", help="leave malloc as the C library has it")
    parser.add_argument("--output", type=Path, default=ROOT / "out" / "bench" / "memory-soak", help="folder for what each budget left")
    parser.add_argument("--kept", action="store_true", help="report what is in --output")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.one:
        run_one(arguments, arguments.managed[0])
        return
    clock = Clock()
    if not arguments.kept and (ended := run_all(arguments)):
        sys.exit(f"ended with an error: {', '.join(ended)}")
    results = [Soak.load(path) for managed in arguments.managed if (path := arguments.output / f"{managed}.json").exists()]
    folder = arguments.result.parent if arguments.result is not None else arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    plot(results, folder / PLOT)
    keep(report(results, clock.header(__file__)), arguments.result)


def run_all(arguments: argparse.Namespace) -> list[str]:
    """Run each budget and return those that did not end as they should."""
    running = {}
    for managed in arguments.managed:
        (arguments.output / f"{managed}.json").unlink(missing_ok=True)
        running[managed] = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--one", "--managed", managed], cwd=ROOT)
        if not arguments.together:
            running[managed].wait()
    return [managed for managed, process in running.items() if process.wait() != 0]


def run_one(arguments: argparse.Namespace, managed: str) -> None:
    """Run one budget and keep what it took."""
    settings = SoakSettings(
        managed_bytes=parse_size(managed),
        written_bytes=parse_size(arguments.written),
        seconds_max=arguments.minutes * 60,
        slots=arguments.slots,
        keys=arguments.keys,
        environment={} if arguments.uncontrolled else allocator_environment(),
    )
    before = load(f"{managed}:")
    with tempfile.TemporaryDirectory(prefix="memory-soak-") as work:
        result = soak(
            settings, Path(work), baseline_bytes=parse_size(arguments.baseline_written), load_before=(before.load_1m, before.busy)
        )
    result.save(arguments.output / f"{managed}.json")
    print(f"{managed}: {result.soak.written_bytes / GIB:.1f} GiB in {result.soak.seconds:.0f} s", flush=True)


def report(results: list[Soak], header: dict[str, Any]) -> Result:
    """What was found."""
    columns = (
        "managed",
        "written GiB",
        "MiB/s",
        "checkpoints",
        "Python's part MiB",
        "peak MiB",
        "above Python MiB",
        "of the budget",
        "shared",
    )
    return Result(
        **header | {"seconds": sum(result.soak.seconds + result.baseline.seconds for result in results)},
        title="Managed memory: a long soak",
        about=(
            "2 slots with 50 states each (values of 8 bytes to 64 KiB, lists, maps), random updates and scans; every twelfth batch spills, a"
            " checkpoint a minute, whose snapshot keeps the store for 2 s at least. Peak of the resident memory of either slot (VmHWM), less that of the same process with the same batches,"
            " no snapshots, and a store that keeps nothing. The last column has the peak of the proportional set size (a page that n"
            f" processes share counts 1/n). It must stay within {1 + TOLERANCE:.0%} of the budget; what decides it is in [memory.md](memory.md)."
        ),
        loads=tuple(
            Load(before=f"{format_size(result.managed_bytes)}:", load_1m=result.machine_load[0], busy=result.machine_load[1])
            for result in results
        ),
        targets=tuple(_target(result) for result in results),
        tables=(Table(columns=columns, rows=tuple(_row(result) for result in results)),),
        notes=(
            "Longest snapshots: "
            + ", ".join(f"{max(result.soak.snapshots_s, default=0.0):.1f} s with {format_size(result.managed_bytes)}" for result in results)
            + ". What batches commit during one is held within the bound that the changes of a batch have in Python.",
            "The curves show resident memory over what was written, of each slot, and dashed its proportional set size.",
        ),
        plot=PLOT,
    )


def _target(result: Soak) -> Target:
    return Target(
        what=f"peak of a slot with {format_size(result.managed_bytes)} managed, above Python's part, {result.soak.written_bytes / GIB:.1f} GiB written",
        wanted=100 * (1 + TOLERANCE),
        measured=100 * result.native_bytes / result.managed_bytes,
        unit="% of the budget",
        at_least=False,
    )


def _row(result: Soak) -> tuple[str, ...]:
    run = result.soak
    shared = [size for curve in run.shared_curves for _, size in curve]
    return (
        format_size(result.managed_bytes),
        f"{run.written_bytes / GIB:.1f}",
        f"{run.written_bytes / MIB / run.seconds:.0f}",
        str(run.checkpoints),
        f"{result.baseline_bytes / MIB:.1f}",
        f"{max(run.peak_bytes) / MIB:.1f}",
        f"{result.native_bytes / MIB:.1f}",
        f"{result.native_bytes / result.managed_bytes:.1%}",
        f"{max(shared) / MIB:.1f}" if shared else "",
    )


def plot(results: list[Soak], path: Path) -> None:
    """Draw the curves."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(5 * len(results), 3.6), squeeze=False)
    for axis, result in zip(axes[0], results, strict=True):
        for slot, (curve, shared) in enumerate(zip(result.soak.curves, result.soak.shared_curves, strict=True)):
            (line,) = axis.plot([at / GIB for at, _ in curve], [size / MIB for _, size in curve], linewidth=0.6, label=f"slot {slot}")
            axis.plot(
                [at / GIB for at, _ in shared], [size / MIB for _, size in shared], linewidth=0.5, linestyle="--", color=line.get_color()
            )
        baseline = result.baseline_bytes / MIB
        budget = result.managed_bytes / MIB
        axis.axhline(baseline, color="grey", linewidth=1, linestyle="--", label="Python alone (peak)")
        axis.axhline(baseline + budget, color="black", linewidth=1, linestyle=":", label="+ managed memory")
        axis.axhline(baseline + budget * (1 + TOLERANCE), color="red", linewidth=1, label=f"+ {TOLERANCE:.0%}")
        axis.set_title(f"{format_size(result.managed_bytes)} managed: peak {result.native_bytes / MIB:.0f} MiB above Python")
        axis.set_xlabel("GiB written")
        axis.set_ylabel("MiB")
        axis.set_ylim(bottom=0)
    axes[0][0].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
