"""Runs real jobs in this process, one after the other, over one Java that all of them share; reads what they gave out and kept."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
import pytest
import yaml
from typer.testing import Result

from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.manifest import validate_job
from statefulspark.coordinator.controls import JobError, JobState, JobStatus
from statefulspark.exchange.config import SlotLogs
from statefulspark.job.run.running import RunningJob
from statefulspark.job.start.manifest_settings import storage_settings
from statefulspark.job.start.start_job import RunOptions, start_job
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

SCRIPT = Path(__file__).parent / "pipelines.py"
TIMERS = SCRIPT.with_name("timers.py")
TWO_STEPS = SCRIPT.with_name("two_steps.py")
Pair = tuple[Any, Any]
Command = Callable[..., Result]


@dataclass(kw_only=True)
class Work:
    """A folder with the input, output and storage of a test, and the job that runs on them now."""

    folder: Path
    name: str = "job"
    entrypoint: str = "counts"
    script: Path = SCRIPT
    parallelism: int = 2
    out: str = "out"
    """Name of the sink's folder."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Global job parameters."""
    spec: dict[str, Any] = field(default_factory=dict)
    """Fields of the manifest's spec that differ."""
    checkpointing: dict[str, Any] = field(default_factory=dict)
    slot_logs: SlotLogs = field(default_factory=SlotLogs)
    jobs: list[RunningJob] = field(default_factory=list)
    monkeypatch: pytest.MonkeyPatch = field(default_factory=pytest.MonkeyPatch, repr=False)
    _files: int = 0

    @property
    def storage(self) -> str:
        """URL of the checkpoint directory."""
        return str(self.checkpointing.get("dir", f"file://{self.folder}/storage"))

    def manifest(self) -> StatefulSparkJob:
        """The job as a manifest says it."""
        return validate_job(self.document())

    def document(self) -> dict[str, Any]:
        """The manifest's content."""
        spec = {
            "job": {
                "script": str(self.script),
                "entrypoint": self.entrypoint,
                "args": [str(self.folder / "in"), str(self.folder / self.out)],
                "parameters": self.parameters,
            },
            "parallelism": self.parallelism,
            "driver": {"memory": "1Gi"},
            "stateBackend": {"type": "memory"},
            "checkpointing": {"dir": self.storage, "interval": "1h", "savepointDir": f"file://{self.folder}/savepoints"}
            | self.checkpointing,
        }
        return {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": self.name},
            "spec": spec | self.spec,
        }

    def write_manifest(self) -> Path:
        """The manifest as a file."""
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump(self.document()))
        return path

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add a file to the source; each file is a batch of its own."""
        source = self.folder / "in"
        source.mkdir(exist_ok=True)
        hidden = source / f".{self._files}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(hidden, (1_700_000_000 + self._files,) * 2)  # Spark takes files in order of their times
        hidden.rename(source / f"{self._files:04d}.json")
        self._files += 1

    def start(
        self, *, until_idle: bool = False, drain: bool = False, parallelism: int | None = None, restore_from: str | None = None
    ) -> RunningJob:
        """Start the job."""
        (self.folder / "in").mkdir(exist_ok=True)
        options = RunOptions(
            until_idle=until_idle, drain=drain, parallelism=parallelism, restore_from=restore_from, slot_logs=self.slot_logs
        )
        job = start_job(self.manifest(), options)
        self.jobs.append(job)
        return job

    def run(self, *, parallelism: int | None = None, restore_from: str | None = None) -> JobStatus:
        """Run the job until its source has nothing more."""
        job = self.start(until_idle=True, parallelism=parallelism, restore_from=restore_from)
        job.wait(120)
        status = job.status()
        assert status.state is JobState.FINISHED, status.error
        return status

    def run_to_failure(self) -> JobError:
        """Run the job until it fails; what it failed with."""
        job = self.start(until_idle=True)
        job.wait(120)
        status = job.status()
        assert status.state is JobState.FAILED, status.state
        assert status.error is not None
        return status.error

    def shift_clock(self, *, hours: int) -> None:
        """From now on the driver's clock, which gives batches their processing time, runs this far ahead."""
        ahead = SimpleNamespace(time=lambda: time.time() + hours * 3600, monotonic=time.monotonic, sleep=time.sleep)
        self.monkeypatch.setattr("statefulspark.coordinator.coordinator.time", ahead)

    def close(self) -> None:
        """End what still runs."""
        for job in self.jobs:
            job.cancel()

    def rows(self) -> list[tuple[Any, ...]]:
        """What the sink holds by Spark's own log of committed files, sorted."""
        committed: dict[Path, None] = {}
        for entry in sorted((self.folder / self.out / "_spark_metadata").glob("[!.]*")):
            for line in entry.read_text().splitlines()[1:]:
                committed[Path(json.loads(line)["path"].removeprefix("file://"))] = None
        frames = [frame for frame in (pd.read_parquet(path) for path in committed) if len(frame)]
        return sorted(tuple(row) for frame in frames for row in frame.itertuples(index=False, name=None))

    def wait_rows(self, number: int, timeout_s: float = 60.0) -> list[tuple[Any, ...]]:
        """Wait until the sink holds ``number`` rows."""
        wait_until(lambda: len(self.rows()) >= number, timeout_s, f"{number} rows")
        return self.rows()

    def wait_checkpoint(self, *, batch: int, timeout_s: float = 60.0) -> None:
        """Wait until the job's newest checkpoint is of that batch or a later one."""

        def taken() -> bool:
            info = self.jobs[-1].status().last_checkpoint
            return info is not None and info.batch >= batch

        wait_until(taken, timeout_s, f"a checkpoint of batch {batch}")

    def state(self, uid: str, state: str, url: str | None = None) -> list[Pair]:
        """Key and value of each entry of a state, in a checkpoint or, by default, in the newest one of the job."""
        settings = storage_settings(self.manifest())
        with closing(
            read_state(url or f"{self.storage}/{self.name}", uid, state, open_store=lambda at: open_store(at, settings))
        ) as entries:
            return sorted((entry.key, entry.timestamp_ms if entry.value is None else entry.value) for entry in entries)

    def store(self) -> ObjectStore:
        """The job's folder in storage."""
        return open_store(f"{self.storage}/{self.name}", storage_settings(self.manifest()))


def local_path(url: str) -> Path:
    """The folder of a file:// URL."""
    return Path(urlsplit(url).path)


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll a condition in bounded time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.05)
