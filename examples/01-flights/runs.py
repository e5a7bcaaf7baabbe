"""One run of the flights job: a process of its own, watched and steered through its driver API, as an operator would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

from statefulspark.api_server.client import JobClient
from statefulspark.api_server.models.job import CheckpointModel, SlotModel, StatusModel
from statefulspark.api_server.run.connection_files import read_connection
from statefulspark.errors import StatefulSparkError

EXECUTOR = "CoarseGrainedExecutorBackend"
STOP_S = 20.0
LOOK_TIMEOUT_S = 5.0
LOG_LINES = 40


class RunFailedError(Exception):
    """The job ended when it should not, or never came up; the text holds the end of its log."""


@dataclass(slots=True)
class Timeline:
    """When batches were committed, as seen from outside; times are ``time.monotonic()`` seconds."""

    commits: list[tuple[float, int]] = field(default_factory=list)
    checkpoints: dict[int, CheckpointModel] = field(default_factory=dict)
    timers_fired: int = 0

    def add(self, at_s: float, status: StatusModel) -> None:
        """Note what a status shows."""
        if status.batch >= 0 and (not self.commits or self.commits[-1][1] != status.batch):
            self.commits.append((at_s, status.batch))
        if status.last_checkpoint is not None:
            self.checkpoints[status.last_checkpoint.id] = status.last_checkpoint

    def longest_gap_s(self, start_s: float, end_s: float) -> float:
        """The longest time without a committed batch that touches ``start_s..end_s``; 0.0 before the second batch."""
        pairs = zip(self.commits, self.commits[1:], strict=False)
        return max((after - before for (before, _), (after, _) in pairs if after >= start_s and before <= end_s), default=0.0)

    def usual_gap_s(self) -> float:
        """The median time between two batches."""
        gaps = sorted(after - before for (before, _), (after, _) in zip(self.commits, self.commits[1:], strict=False))
        return gaps[len(gaps) // 2] if gaps else 0.0


class JobRun:
    """A context manager around ``statefulspark run MANIFEST --until-idle``; leaving it ends the process, whatever happened.

    Args:
        manifest: The StatefulSparkJob to run.
        name: Its metadata.name, by which its driver API is found.
        folder: Where the log and the connection file go.
    """

    def __init__(self, manifest: Path, name: str, folder: Path) -> None:
        self.timeline = Timeline()
        self.log = folder / "job.log"
        self._manifest = manifest
        self._name = name
        self._home = folder / "home"
        self._client: JobClient | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the process in a session of its own, so that its JVMs can be ended with it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [str(Path(sys.executable).with_name("statefulspark")), "run", str(self._manifest), "--until-idle", "--no-progress"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "STATEFULSPARK_HOME": str(self._home.absolute())},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End what is left of it."""
        if self._client is not None:
            self._client.close()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def look(self) -> StatusModel | None:
        """Ask the driver for its status and note it; None while it does not answer (starting up, shutting down)."""
        try:
            self._client = self._client or self.client()
            status = self._client.status()
        except StatefulSparkError:
            return None
        self.timeline.add(time.monotonic(), status)
        return status

    def count_timers(self) -> None:
        """Note from the driver's metrics how many timers have fired so far."""
        try:
            connection = read_connection(self._home, self._name)
            headers = {"Authorization": f"Bearer {connection.token}"}
            text = httpx.get(f"{connection.url}/metrics", headers=headers, timeout=LOOK_TIMEOUT_S, trust_env=False).text
        except (StatefulSparkError, httpx.HTTPError):
            return  # starting up or shutting down
        values = [float(value) for value in re.findall(r"^statefulspark_timers_fired_total(?:\{.*\})? (\S+)$", text, flags=re.MULTILINE)]
        self.timeline.timers_fired = max([self.timeline.timers_fired, *map(int, values)])

    def client(self) -> JobClient:
        """Connect to the driver API; also for use from another thread, which needs a client of its own."""
        connection = read_connection(self._home, self._name)
        return JobClient(connection.url, connection.token)

    def ended(self) -> bool:
        """Whether the process has ended well; RunFailedError when it has ended badly."""
        code = self._running.poll()
        if code:
            raise RunFailedError(f"the job ended with exit code {code}; the end of {self.log}:\n{self.log_tail()}")
        return code == 0

    def kill_executor(self, slots: list[SlotModel]) -> tuple[int, list[int]]:
        """SIGKILL the executor JVM that runs the first of ``slots``; give its process id and the slots that were on it."""
        executors = [
            child
            for child in psutil.Process(self._running.pid).children(recursive=True)
            if any(EXECUTOR in part for part in command_line(child))
        ]
        if not executors:
            raise RunFailedError("no executor JVM was found to kill: the job must run on executors of its own (local-cluster)")
        owners = {slot.slot: ancestors(slot.pid) for slot in slots if slot.pid is not None}
        victim = next((executor for executor in executors if executor.pid in owners.get(0, ())), executors[0])
        victim.send_signal(signal.SIGKILL)
        return victim.pid, [slot for slot, pids in owners.items() if victim.pid in pids]

    def log_tail(self) -> str:
        """The last lines of the job's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RunFailedError("the job was not started; use JobRun as a context manager")
        return self._process


def command_line(process: psutil.Process) -> list[str]:
    """The arguments of a process; empty when it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def ancestors(pid: int) -> list[int]:
    """The process ids above ``pid``; empty when it has ended."""
    try:
        return [parent.pid for parent in psutil.Process(pid).parents()]
    except psutil.Error:
        return []
