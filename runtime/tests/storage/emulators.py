"""Servers of other object stores, at pinned versions, in ``out/emulators``: installed by `make emulators`, started by the tests.

    python runtime/tests/storage/emulators.py    # installs what is missing, minutes on a new machine

Without one, its tests are skipped and say what to do. STATEFULSPARK_EMULATORS names another folder, for example one that several checkouts share.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[3]
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Emulator:
    """One server and how it is installed."""

    name: str
    version: str
    tool: str
    """Command that installs it."""
    marker: str
    """File that is there once it is installed, relative to its folder."""
    install: Callable[[Path], Sequence[tuple[Sequence[str], Mapping[str, str]]]]
    """Commands, each with what it adds to the environment, that install it into a folder."""

    @property
    def folder(self) -> Path:
        """Where it is or will be installed."""
        root = os.environ.get("STATEFULSPARK_EMULATORS")
        return (Path(root) if root else _REPOSITORY / "out" / "emulators") / f"{self.name}-{self.version}"

    @property
    def file(self) -> Path:
        """The marker, which is also what is started."""
        return self.folder / self.marker


def _azurite(folder: Path) -> Sequence[tuple[Sequence[str], Mapping[str, str]]]:
    return [(("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), "azurite@3.37.0"), {})]


def _fake_gcs(folder: Path) -> Sequence[tuple[Sequence[str], Mapping[str, str]]]:
    return [(("go", "install", "github.com/fsouza/fake-gcs-server@v1.56.1"), {"GOBIN": str(folder)})]


def _minicluster(folder: Path) -> Sequence[tuple[Sequence[str], Mapping[str, str]]]:
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    artifact = "-Dartifact=org.apache.hadoop:hadoop-client-minicluster:3.5.0"
    return [(("mvn", "--batch-mode", "--quiet", copy, artifact, f"-DoutputDirectory={folder}"), {})]


AZURITE = Emulator("azurite", "3.37.0", "npm", "node_modules/azurite/dist/src/blob/main.js", _azurite)
FAKE_GCS = Emulator("fake-gcs-server", "1.56.1", "go", "fake-gcs-server", _fake_gcs)
MINICLUSTER = Emulator("hadoop-client-minicluster", "3.5.0", "mvn", "hadoop-client-minicluster-3.5.0.jar", _minicluster)
"""HDFS's own NameNode and DataNodes in one JVM; of the release whose client Spark brings, which it needs beside it."""

EMULATORS = (AZURITE, FAKE_GCS, MINICLUSTER)


def required(emulator: Emulator) -> Path:
    """The installed server's file; skips the test when there is none."""
    if not emulator.file.exists():
        pytest.skip(f"{emulator.name} is not installed: run `make emulators` (needs {emulator.tool})")
    return emulator.file


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], url: str, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a server until the end of the block; it is up when ``url`` answers anything."""
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stream, stderr=stream, env=os.environ | (environment or {}))
    try:
        _wait_for(url, process, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end_s = time.monotonic() + _START_S
    while time.monotonic() < end_s and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError as answer:
            answer.close()
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"{url} did not come up: {log.read_text(errors='replace')[-2000:]}")


def main() -> int:
    """Install what is missing; 0 also when a tool is missing, which is said."""
    for emulator in EMULATORS:
        if emulator.file.exists():
            print(f"{emulator.name} {emulator.version} is installed")
            continue
        if shutil.which(emulator.tool) is None:
            print(
                f"{emulator.name}: {emulator.tool} is not installed, so its tests will be skipped. Install it and run `make emulators` again"
            )
            continue
        print(f"installing {emulator.name} {emulator.version} into {emulator.folder}", flush=True)
        partial = emulator.folder.with_name(f"{emulator.folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for command, environment in emulator.install(partial):
            subprocess.run(command, check=True, env=os.environ | environment)
        shutil.rmtree(emulator.folder, ignore_errors=True)
        partial.rename(emulator.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
