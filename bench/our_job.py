"""Runs a job of this runtime for a benchmark, as `statefulspark run --until-idle` would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

Batches = list[dict[str, Any]]
"""Of each batch: its number, ``rows`` and ``ms``, and, if it was asked for, ``cpu_s``: the CPU time of the whole job (JVM, slots, Python workers) soon after it."""


def run_job(
    name: str, script: str, args: Sequence[object], work: Path, checkpointing: Mapping[str, Any] | None = None, *, with_cpu: bool = False
) -> Batches:
    """Run a job with two slots, RocksDB and a checkpoint every 10 s until its input is used up.

    Args:
        name: of the job; its state is below ``work / "storage" / name``.
        script: file of this folder with its pipeline.
        args: its arguments.
        work: folder for its storage.
        checkpointing: fields of ``spec.checkpointing`` that differ.
        with_cpu: measure CPU time, which takes some itself.

    Returns:
        What its batches took, in order.

    Raises:
        RuntimeError: The job failed.
    """
    # Imported here, so that the contenders that run Spark alone do not load this runtime.
    from statefulspark.config.manifest import validate_job
    from statefulspark.job.start.start_job import RunOptions, start_job

    manifest = validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": name},
            "spec": {
                "job": {"script": str(Path(__file__).resolve().with_name(script)), "args": [str(each) for each in args]},
                "parallelism": 2,
                "maxParallelism": 128,
                "driver": {"memory": "2Gi"},
                "checkpointing": {"dir": f"file://{work}/storage", "interval": "10s", **(checkpointing or {})},
            },
        }
    )
    job = start_job(manifest, RunOptions(until_idle=True))
    progress: dict[int, dict[str, Any]] = {}
    while not job.wait(0.1).final:
        new = {entry["batch"]: entry for entry in job.recent_progress() if entry["batch"] not in progress}
        if new:
            measured = {"cpu_s": cpu_seconds()} if with_cpu else {}
            progress |= {batch: entry | measured for batch, entry in new.items()}
    error = job.status().error
    if error is not None:
        raise RuntimeError(error.message)
    return [progress[batch] for batch in sorted(progress)]


def cpu_seconds() -> float:
    """CPU time so far of this process and its descendants, also of those that have ended."""
    found = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found
