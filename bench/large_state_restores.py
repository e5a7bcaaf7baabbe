"""Restores of one checkpoint, and copies of its files by other means, in turns: the second phase of `large_state.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from machine import ROOT

NAME = "keep"
"""Of the job."""
GROUPS = 128
"""Its key groups."""


def together(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> float:
    """Seconds until all of some processes, which start to work at the same time, have ended. Their allocator is set as in a slot."""
    from statefulspark.slot.allocator import allocator_environment

    environment = {**os.environ, **allocator_environment(), **environment}
    os.sync()  # what was written before is not theirs to wait for
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) for command in commands]
    for process in running:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("a process did not start")
    for process in running:
        if process.stdin is not None:
            process.stdin.write("\n")
            process.stdin.flush()
    seconds = [float(process.communicate()[0]) for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("a process failed")
    return max(seconds)


def children(way: str, url: str, parallelism: int, into: Path, environment: Mapping[str, str]) -> float:
    """Restore all slots of this parallelism at once, or get the same files, with a process per slot."""
    from statefulspark.keygroups import ranges

    child = str(Path(__file__).with_name("restore_child.py"))
    commands = [
        [sys.executable, child, way, url, str(groups.first), str(groups.last), str(into / f"{way}-{slot}")]
        for slot, groups in enumerate(ranges(parallelism, GROUPS))
    ]
    try:
        return together(commands, environment)
    finally:
        shutil.rmtree(into, ignore_errors=True)


def copied(folder: Path, into: Path) -> float:
    """Copy a checkpoint's files with `cp`, a process per slot."""
    from statefulspark.checkpoint.catalog import open_checkpoint
    from statefulspark.checkpoint.formats import paths
    from statefulspark.storage.open import open_store

    base = open_checkpoint(folder.as_uri(), open_store)
    commands = []
    for slot in base.metadata.slots:
        target = into / f"cp-{slot.slot}"
        target.mkdir(parents=True)
        files = [str(folder / paths.resolve_reference(base.key, file.path)) for file in slot.files]
        script = 'echo ready; read line; began=$(date +%s.%N); cp "$@"; ended=$(date +%s.%N); echo "$ended - $began" | bc'
        commands.append(["bash", "-c", script, "cp", *files, str(target)])
    try:
        return together(commands, {})
    finally:
        shutil.rmtree(into, ignore_errors=True)


@contextmanager
def s3_service(folder: Path) -> Iterator[dict[str, str] | None]:
    """Serve the storage over HTTP; the environment of its clients, or None if the service is not installed."""
    sys.path.insert(0, str(ROOT))
    from runtime.tests.versity import SECRET, USER, Versity

    program = ROOT / "out" / "tools" / "versitygw"
    if not program.exists():
        yield None
        return
    server = Versity(program=program, folder=folder, port=17_070)
    server.start()
    try:
        yield {
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.kill()


def restores(work: Path, storage: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way to restore or copy, in turns."""
    job, into = storage / NAME, work / "into"
    bucket = f"s3://{storage.parent.name}/{storage.name}/{NAME}"
    measured: dict[str, list[float]] = {}
    with s3_service(storage.parents[1]) as service:
        ways: dict[str, Callable[[], float]] = {
            "cp": lambda: copied(job, into),
            "restore, files, 2 to 2": lambda: children("restore", job.as_uri(), 2, into, {}),
            "restore, files, 2 to 3": lambda: children("restore", job.as_uri(), 3, into, {}),
        }
        if service is not None:
            ways |= {
                "parallel GETs": lambda: children("get", bucket, 2, into, service),
                "restore, S3, 2 to 2": lambda: children("restore", bucket, 2, into, service),
            }
        for _ in range(rounds):
            for name, way in ways.items():
                measured.setdefault(name, []).append(way())
                print(f"{name}: {measured[name][-1]:.1f} s", file=sys.stderr, flush=True)
    return measured
