"""Runs the ledger job as a person would (``statefulspark run``) and compares what it gave out and kept with the oracle."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from runtime.tests.java_options import QUICK

from statefulspark.checkpoint.inspect.reader import read_state, state_sizes
from statefulspark.config.manifest import load_manifest
from statefulspark.job.start.manifest_settings import storage_settings
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

from . import oracle

_HERE = Path(__file__).parent
_MANIFEST = """
apiVersion: statefulspark.io/v1alpha1
kind: StatefulSparkJob
metadata: {{name: ledger}}
spec:
  job: {{script: {script}, entrypoint: {entrypoint}, args: ["{source}", "{target}"]}}
  parallelism: 2
  maxParallelism: 32
  executor: {{slots: 4, memoryParts: {{heap: 768Mi}}, managedMemory: {{size: 64Mi}}}}
  driver: {{memory: 1536Mi}}
  stateBackend: {{type: {backend}}}
  sparkConf: {conf}
  checkpointing:
    dir: {storage}
    interval: {interval}
    mode: {mode}
    changelogInlineThreshold: {inline}
    retention: {{count: 2}}
    storage: {s3}
"""


@dataclass(kw_only=True)
class Ledger:
    """One job with its input, output and storage, over any number of driver processes."""

    folder: Path
    seed: int
    files: int
    rows: int = 60
    entrypoint: str = "pipeline"
    """The pipeline in ``ledger_job``."""
    backend: str = "rocksdb"
    interval: str = "2s"
    mode: str = "exactly-once"
    """Checkpointing mode of drivers that start after `write_manifest`."""
    inline: str = "0"
    """Size up to which these drivers store changelogs, many in one object."""
    storage_url: str | None = None
    s3: dict[str, Any] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    java_options: str = QUICK
    """Of every JVM, the executors' too."""
    failpoints: tuple[str, ...] = ()
    """Entries of ``STATEFULSPARK_FAILPOINTS``; none kills before ``arm``."""
    environment: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    """A program, with its arguments, that starts the driver."""
    input: pd.DataFrame = field(init=False)
    final_ms: int | None = field(init=False, default=None)
    """The watermark after all rows; None if they are those of one input."""
    random: random.Random = field(init=False)
    process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    starts: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Write input and manifest."""
        self.random = random.Random(self.seed)
        self.input = oracle.write_input(self.folder / "in", files=self.files, rows=self.rows, accounts=60, seed=self.seed)
        self._done.mkdir()
        for entry in self.failpoints:
            self._done_file(entry).touch()
        self.write_manifest()

    def write_manifest(self) -> None:
        """Write what the next driver reads."""
        self.manifest.write_text(
            _MANIFEST.format(
                script=_HERE / "ledger_job.py",
                entrypoint=self.entrypoint,
                source=self.folder / "in",
                target=self.folder / "out",
                storage=self.storage_url or f"file://{self.folder}/storage",
                backend=self.backend,
                interval=self.interval,
                mode=self.mode,
                inline=self.inline,
                conf=json.dumps(self.conf),
                s3=json.dumps(self.s3),
            )
        )

    @property
    def manifest(self) -> Path:
        """The job's manifest."""
        return self.folder / "job.yaml"

    @property
    def temporary(self) -> Path:
        """Everything a driver and its executors keep on local disk."""
        return self.folder / "tmp"

    @property
    def home(self) -> Path:
        """Where the driver says how it can be reached."""
        return self.folder / "home"

    # -- the driver ------------------------------------------------------------------------------------------------------

    def start(self, *arguments: str) -> None:
        """Start a driver process."""
        self.temporary.mkdir(exist_ok=True)
        environment = os.environ | {
            "TMPDIR": str(self.temporary),
            "SPARK_LOCAL_DIRS": str(self.temporary),
            "SPARK_WORKER_DIR": str(self.temporary / "work"),
            "STATEFULSPARK_HOME": str(self.home),
            "STATEFULSPARK_FAILPOINTS": ",".join(self.failpoints),
            "STATEFULSPARK_FAILPOINTS_DONE": str(self._done),
            "JAVA_TOOL_OPTIONS": self.java_options,
        }
        environment |= self.environment
        self.starts += 1
        command = [
            sys.executable,
            "-m",
            "statefulspark.cli.main",
            "run",
            str(self.manifest),
            "--no-progress",
            "--api-port",
            "0",
            "--log-file",
            "-",
        ]
        with (self.folder / f"log-{self.starts}").open("wb") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *command, *arguments], cwd=self.temporary, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def connection(self) -> dict[str, Any] | None:
        """URL and token of the present driver's API, None while it has none."""
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.home / "jobs" / "ledger.json").read_text())
            return found if self.process is not None and found["pid"] == self.process.pid else None
        return None

    def status(self) -> dict[str, Any] | None:
        """The driver's status, None while it cannot be asked."""
        connection = self.connection()
        if connection is None:
            return None
        try:
            request = urllib.request.Request(connection["url"] + "/v1/status", headers={"Authorization": "Bearer " + connection["token"]})
            with urllib.request.urlopen(request, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            return None

    def post(self, path: str, body: dict[str, Any] | None = None) -> None:
        """Ask the present driver for an operation, without waiting for its end."""
        connection = self.connection()
        assert connection is not None, "the driver has no API"
        headers = {"Authorization": "Bearer " + connection["token"], "Content-Type": "application/json"}
        url = f"{connection['url']}/v1/{path}?wait=false"
        request = urllib.request.Request(url, data=json.dumps(body or {}).encode(), headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=10):
            pass

    def batch(self) -> int:
        """Last batch that the present driver knows to be committed; -1 before it answers."""
        status = self.status()
        return -1 if status is None else int(status["batch"])

    def running(self) -> bool:
        """Whether the driver process lives."""
        return self.process is not None and self.process.poll() is None

    def kill_driver(self) -> None:
        """SIGKILL the driver and all it started, as the end of its machine would; returns when all are gone."""
        if self.process is None:
            return
        deadline = time.monotonic() + 30
        while found := self.processes():
            for process in found:
                kill(process.pid)
            self.process.poll()
            if time.monotonic() > deadline:
                raise AssertionError(f"processes live on: {found}")
            time.sleep(0.02)
        self.process.wait(timeout=30)

    def processes(self) -> list[psutil.Process]:
        """The driver and all it started, also when their parent is dead: they inherit its environment, and so this job's home."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                ours = process.environ().get("STATEFULSPARK_HOME") == str(self.home)
                if self.process is not None and ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def wipe_disk(self) -> None:
        """Lose everything local."""
        shutil.rmtree(self.temporary)

    def wait(self, timeout_s: float) -> None:
        """Wait for the driver's own, good end."""
        if self.process is None:
            raise RuntimeError("not started")
        try:
            code = self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end within {timeout_s:.0f} s") from None
        assert code == 0, f"the job ended with {code}"

    def wait_for_batch(self, batch: int, timeout_s: float = 180.0) -> None:
        """Wait until the driver has committed ``batch``."""
        wait_until(lambda: self.batch() >= batch or not self.running(), timeout_s, f"batch {batch}")
        assert self.running(), "the driver has ended"

    def log(self, lines: int = 60) -> str:
        """The end of the newest driver's log."""
        return "\n".join((self.folder / f"log-{self.starts}").read_text(errors="replace").splitlines()[-lines:])

    # -- failpoints ------------------------------------------------------------------------------------------------------

    @property
    def _done(self) -> Path:
        return self.folder / "done"

    def _done_file(self, entry: str) -> Path:
        return self._done / entry.replace(":", "-")

    def arm(self, entry: str) -> None:
        """Let the next process that reaches the point of ``entry`` die there."""
        self._done_file(entry).unlink()

    def disarm(self, entry: str) -> None:
        """Let nobody die at ``entry``."""
        self._done_file(entry).touch()

    def struck(self, entry: str) -> bool:
        """Whether somebody has died at ``entry`` since it was armed."""
        return self._done_file(entry).exists()

    # -- victims ---------------------------------------------------------------------------------------------------------

    def executors(self) -> list[int]:
        """Process ids of the job's executor JVMs."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                    found.append(process.pid)
        return found

    def slots(self) -> list[int]:
        """Process ids of the slots that serve."""
        status = self.status()
        return [] if status is None else [slot["pid"] for slot in status["slots"] if slot["state"] == "RUNNING" and slot["pid"]]

    # -- the outcome -----------------------------------------------------------------------------------------------------

    def output(self) -> pd.DataFrame:
        """What the sink holds, by Spark's own log of committed files."""
        return oracle.ordered(pd.concat([pd.read_parquet(path) for path in committed_files(self.folder / "out")], ignore_index=True))

    def state(self) -> dict[str, dict[Any, Any]]:
        """What the newest checkpoint holds, in the oracle's form."""
        settings = storage_settings(load_manifest(self.manifest))

        def opened(url: str) -> ObjectStore:
            return open_store(url, settings)

        url = f"{load_manifest(self.manifest).spec.checkpointing.dir.rstrip('/')}/ledger"
        found: dict[str, dict[Any, Any]] = {}
        for size in state_sizes(url, open_store=opened):
            entries = list(read_state(url, size.info.uid, size.info.name, open_store=opened))
            values: dict[Any, Any] = {}
            for entry in entries:
                key = entry.key if entry.user_key is None else (entry.key, entry.user_key)
                values[key] = entry.timestamp_ms if entry.timestamp_ms is not None else entry.value
            assert len(values) == len(entries), f"a key is stored twice in {size.info.name}"
            found[size.info.name] = values
        return found

    def check_output(self) -> None:
        """The output is exactly what pandas computes."""
        pd.testing.assert_frame_equal(self.output(), oracle.expected_output(self.input, self.final_ms), check_dtype=False)

    def check(self) -> None:
        """Output and keyed state are exactly what pandas computes."""
        self.check_output()
        self.check_state()

    def check_repeated(self) -> int:
        """Output lacks nothing and has nothing that was never right, and keyed state is exactly what pandas computes.

        Returns:
            How many rows of the output are repetitions.
        """
        given, expected = self.output(), oracle.expected_output(self.input, self.final_ms)
        pd.testing.assert_frame_equal(oracle.ordered(given.drop_duplicates()), expected, check_dtype=False)
        self.check_state()
        return len(given) - len(expected)

    def check_state(self) -> None:
        """Keyed state is exactly what pandas computes."""
        state = self.state()
        expected = oracle.expected_state(self.input, self.final_ms)
        assert state.keys() - expected.keys() <= {"processing-timers"}
        for name, values in expected.items():
            assert state[name] == values, f"state {name} differs"


def committed_files(folder: Path) -> list[Path]:
    """Files of a sink's folder that are in Spark's own log of committed files."""
    committed: dict[Path, None] = {}
    for entry in sorted((folder / "_spark_metadata").iterdir()):
        if not entry.name.startswith("."):
            for line in entry.read_text().splitlines()[1:]:
                committed[Path(json.loads(line)["path"].removeprefix("file://"))] = None
    return list(committed)


def kill(pid: int) -> None:
    """SIGKILL a process that may be gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def ending(ledger: Ledger) -> Iterator[Ledger]:
    """Leave nothing running behind; of a failure, say seed and folder, and show the end of the log."""
    print(f"seed {ledger.seed}, folder {ledger.folder}")  # noqa: T201  pytest shows it when the test fails
    try:
        yield ledger
    except BaseException:
        if ledger.starts:
            print(f"end of {ledger.folder}/log-{ledger.starts}:\n{ledger.log()}")  # noqa: T201  pytest shows it when the test fails
        raise
    finally:
        ledger.kill_driver()


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll a condition in bounded time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {timeout_s:.0f} s")
        time.sleep(0.06)
