"""Runs the ledger job as a person would (``statefulspark run``), breaks it from outside, and compares what it gave out and kept."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from . import oracle

_HERE = Path(__file__).parent
_MANIFEST = """
apiVersion: statefulspark.io/v1alpha1
kind: StatefulSparkJob
metadata: {{name: ledger}}
spec:
  job: {{script: {script}, args: ["{source}", "{target}"]}}
  parallelism: 2
  maxParallelism: 32
  executor: {{slots: {slots}, memory: 1Gi, managedMemory: {{size: 64Mi}}}}
  driver: {{memory: 1Gi}}
  stateBackend: {{type: {backend}}}
  sparkConf: {conf}
  checkpointing:
    dir: {storage}
    interval: {interval}
    retention: {{count: 2}}
    storage: {s3}
"""


@dataclass(slots=True, kw_only=True)
class Ledger:
    """One job with its input, output and storage, over any number of driver processes."""

    folder: Path
    seed: int
    files: int
    rows: int = 200
    backend: str = "rocksdb"
    master: str | None = None
    slots: int = 4
    interval: str = "2s"
    storage_url: str | None = None
    s3: dict[str, Any] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    input: pd.DataFrame = field(init=False)
    random: random.Random = field(init=False)
    process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    starts: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Write input and manifest."""
        self.random = random.Random(self.seed)
        self.input = oracle.write_input(self.folder / "in", files=self.files, rows=self.rows, accounts=60, seed=self.seed)
        conf = dict(self.conf)
        if self.master is not None:
            conf["spark.master"] = self.master
        (self.folder / "job.yaml").write_text(
            _MANIFEST.format(
                script=_HERE / "ledger_job.py",
                source=self.folder / "in",
                target=self.folder / "out",
                storage=self.storage,
                backend=self.backend,
                slots=self.slots,
                interval=self.interval,
                conf=json.dumps(conf),
                s3=json.dumps(self.s3),
            )
        )

    @property
    def storage(self) -> str:
        """URL of the checkpoint directory."""
        return self.storage_url or f"file://{self.folder}/storage"

    @property
    def temporary(self) -> Path:
        """Everything a driver and its executors keep on local disk."""
        return self.folder / "tmp"

    def start(self, *arguments: str) -> None:
        """Start a driver process."""
        self.temporary.mkdir(exist_ok=True)
        environment = os.environ | {
            "TMPDIR": str(self.temporary),
            "SPARK_LOCAL_DIRS": str(self.temporary),
            "STATEFULSPARK_HOME": str(self.folder / "home"),
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_WORKER_DIR": str(self.temporary / "work"),
        }
        environment |= self.environment
        self.starts += 1
        command = [sys.executable, "-m", "statefulspark.cli.main", "run", str(self.folder / "job.yaml"), "--no-progress", "--api-port", "0"]
        with (self.folder / f"log-{self.starts}").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *arguments], cwd=self.temporary, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def status(self) -> dict[str, Any] | None:
        """The driver's status, None while it cannot be asked."""
        try:
            connection = json.loads((self.folder / "home" / "jobs" / "ledger.json").read_text())
            request = urllib.request.Request(connection["url"] + "/v1/status", headers={"Authorization": "Bearer " + connection["token"]})
            with urllib.request.urlopen(request, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            return None

    def running(self) -> bool:
        """Whether the driver process lives."""
        return self.process is not None and self.process.poll() is None

    def kill_driver(self) -> None:
        """SIGKILL the driver and all it started, as the end of its machine would."""
        if self.process is None:
            return
        processes = [*_descendants(self.process.pid), psutil.Process(self.process.pid)] if self.running() else []
        for process in processes:
            _kill(process.pid)
        self.process.wait(timeout=30)

    def wipe_disk(self) -> None:
        """Lose everything local."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def wait(self, timeout_s: float) -> int:
        """Wait for the driver's own end; its exit code."""
        if self.process is None:
            raise RuntimeError("not started")
        try:
            return self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill_driver()
            raise AssertionError(f"the job did not end within {timeout_s:.0f} s\n{self.log()}") from None

    def log(self, lines: int = 60) -> str:
        """The end of the newest driver's log."""
        return "\n".join((self.folder / f"log-{self.starts}").read_text(errors="replace").splitlines()[-lines:])

    def output(self) -> pd.DataFrame:
        """What the sink holds, by Spark's own log of committed files."""
        committed: list[Path] = []
        for entry in sorted((self.folder / "out" / "_spark_metadata").iterdir()):
            if entry.name.startswith("."):
                continue
            for line in entry.read_text().splitlines()[1:]:
                added = json.loads(line)
                path = Path(added["path"].removeprefix("file://"))
                if path not in committed:
                    committed.append(path)
        parts = [pd.read_parquet(path) for path in committed]
        return oracle.ordered(pd.concat(parts, ignore_index=True))

    def check_output(self) -> None:
        """The output is exactly what pandas computes."""
        pd.testing.assert_frame_equal(self.output(), oracle.expected_output(self.input), check_dtype=False)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def executors_of(ledger: Ledger) -> list[int]:
    """Process ids of the job's executor JVMs."""
    if ledger.process is None:
        return []
    found = []
    for process in _descendants(ledger.process.pid):
        try:
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def slots_of(ledger: Ledger) -> list[int]:
    """Process ids of the job's slots that serve."""
    status = ledger.status()
    if status is None:
        return []
    return [slot["pid"] for slot in status["slots"] if slot["state"] == "RUNNING" and slot["pid"]]


def kill_one(ledger: Ledger, candidates: list[int]) -> bool:
    """SIGKILL one of the processes; False when there is none."""
    if not candidates:
        return False
    _kill(ledger.random.choice(candidates))
    return True


@contextmanager
def ending(ledger: Ledger) -> Iterator[Ledger]:
    """Leave nothing running behind."""
    try:
        yield ledger
    finally:
        ledger.kill_driver()


def wait_until(condition: Any, timeout_s: float, what: str) -> None:
    """Poll a condition in bounded time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {timeout_s:.0f} s")
        time.sleep(0.05)
