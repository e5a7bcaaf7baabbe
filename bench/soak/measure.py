"""One soak, measured: the memory of slots with their stores, and without them for the baseline."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from soak.job import SoakJob, SoakSettings
from soak.memory import Sampler

TOLERANCE: Final = 0.1
"""By how much resident memory may exceed the budget."""
_CURVE_POINTS: Final = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of `SoakJob` took.

    Attributes:
        seconds: From the first batch to the last.
        written_bytes: By all slots.
        batches: Of each slot.
        checkpoints: Completed.
        peak_bytes: Per slot, highest resident memory.
        median_bytes: Per slot, over the second half of the run.
        curves: Per slot, (written bytes, resident bytes); the highest of as many samples as make a few hundred points.
        shared_curves: The same of the proportional set size.
        snapshots_s: How long snapshots took.
        inside: Per slot, what the slot said about itself when it was largest.
    """

    seconds: float
    written_bytes: int
    batches: int
    checkpoints: int
    peak_bytes: list[int]
    median_bytes: list[int]
    curves: list[list[tuple[float, int]]]
    shared_curves: list[list[tuple[float, int]]]
    snapshots_s: list[float]
    inside: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """A soak and its baseline.

    Attributes:
        managed_bytes: Budget of a slot.
        soak: The run with stores.
        baseline: The run without.
        machine_load: Before it: load average, share of the cores in use.
    """

    managed_bytes: int
    soak: Run
    baseline: Run
    machine_load: tuple[float, float]

    @property
    def baseline_bytes(self) -> int:
        """Python's part: the most that a slot without a store took."""
        return max(self.baseline.peak_bytes)

    @property
    def native_bytes(self) -> int:
        """The most that a slot took above the baseline."""
        return max(self.soak.peak_bytes) - self.baseline_bytes

    @property
    def holds(self) -> bool:
        """Whether that stayed within the budget and its tolerance."""
        return self.native_bytes <= self.managed_bytes * (1 + TOLERANCE)

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Soak:
        """Read what `save` wrote."""
        data = json.loads(path.read_text())
        return cls(
            managed_bytes=data["managed_bytes"],
            soak=Run(**data["soak"]),
            baseline=Run(**data["baseline"]),
            machine_load=tuple(data["machine_load"]),
        )


def soak(settings: SoakSettings, work: Path, *, baseline_bytes: int, load_before: tuple[float, float] = (0.0, 0.0)) -> Soak:
    """Measure the soak, then the baseline with the same batches.

    The baseline takes no snapshots: what batches commit during one is held in Python, within the bound that changes have anyway. So
    the verdict is about this bound too.

    Args:
        settings: Of the soak.
        work: Folder to use; deleted afterwards.
        baseline_bytes: What the run for the baseline writes. Its peak can only be higher the longer it runs, so that less than the soak
            writes makes the verdict stricter.
        load_before: Kept with the result.
    """
    measured = run(settings, work / "soak")
    without = replace(
        settings,
        without_store=True,
        checkpoint_s=None,
        written_bytes=min(baseline_bytes, measured.written_bytes),
    )
    return Soak(managed_bytes=settings.managed_bytes, soak=measured, baseline=run(without, work / "baseline"), machine_load=load_before)


def run(settings: SoakSettings, work: Path) -> Run:
    """Run a job to its end and look at its slots meanwhile."""
    work.mkdir(parents=True)
    try:
        with SoakJob(settings, work) as job:
            job.wait_ready()
            with Sampler(job.pids, lambda: job.written_bytes) as sampler:
                started = time.monotonic()
                job.run()
                seconds = time.monotonic() - started
                time.sleep(1)
            return Run(
                seconds=seconds,
                written_bytes=job.written_bytes,
                batches=job.batches,
                checkpoints=job.checkpoints,
                peak_bytes=sampler.peak_bytes,
                median_bytes=[
                    int(statistics.median(each.rss_bytes for each in samples[len(samples) // 2 :])) for samples in sampler.samples
                ],
                curves=[_curve([(each.progress, each.rss_bytes) for each in samples]) for samples in sampler.samples],
                shared_curves=[
                    _curve([(each.progress, each.pss_bytes) for each in samples if each.pss_bytes is not None])
                    for samples in sampler.samples
                ],
                snapshots_s=list(dict.fromkeys(line["snapshot_s"] for log in job.logs for line in _lines(log) if line.get("snapshot_s"))),
                inside=[max(_lines(log), key=lambda line: line["rss"], default={}) for log in job.logs],
            )
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _curve(points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Fewer points, none of the peaks lost."""
    width = max(1, -(-len(points) // _CURVE_POINTS))
    return [max(points[first : first + width], key=lambda point: point[1]) for first in range(0, len(points), width)]


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
