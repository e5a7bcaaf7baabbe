"""Starts the real command line with a fake job in place of Spark; run as a process of its own by test_cli.

Environment: FAKE_END = the state the job ends in after FAKE_LOOKS looks (never without it); FAKE_ERROR = reason of a failure;
FAKE_STOP_HANGS = a stop never returns; FAKE_PRINTS = the start prints, in every way there is;
FAKE_LOGS = what the start logs.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from runtime.tests.api_server.fake_job import FakeJob

from statefulspark.coordinator.controls import JobError, JobState
from statefulspark.errors import InvalidInputError


def start_job(manifest: Any, options: Any) -> FakeJob:
    sys.stderr.write(f"environment has a token: {'STATEFULSPARK_API_TOKEN' in os.environ}\n")
    if options.parallelism == 999:
        raise InvalidInputError("999 is more than maxParallelism 128", field="--parallelism")
    if os.environ.get("FAKE_PRINTS"):
        sys.stdout.write("printed\n")
        sys.__stdout__.write("printed to a stream that was kept\n")  # type: ignore[union-attr]  # it is open
        subprocess.run(["echo", "printed by a child"], check=True)
    if text := os.environ.get("FAKE_LOGS"):
        logging.getLogger("flights").info(text, extra={"fact": text})
    job = FakeJob(name=manifest.metadata.name, parallelism=options.parallelism or 2)
    job.change(restored_from=options.restore_from)
    looks = 0

    def on_wait(_: FakeJob) -> None:
        nonlocal looks
        looks += 1
        if looks == int(os.environ.get("FAKE_LOOKS", "2")) and (end := os.environ.get("FAKE_END")):
            reason = os.environ.get("FAKE_ERROR")
            text = (
                'Traceback (most recent call last):\n  File "flights.py", line 7, in process_element\nZeroDivisionError: division by zero'
            )
            job.change(state=JobState(end), error=JobError(reason=reason, message=text) if reason else None)

    job.on_wait = on_wait
    if os.environ.get("FAKE_STOP_HANGS"):
        job.hold = threading.Event()
    return job


class RunOptions(types.SimpleNamespace):
    """What the command passes on."""


fake = types.ModuleType("statefulspark.job.start.start_job")
fake.start_job = start_job  # type: ignore[attr-defined]  # a module made by hand
fake.RunOptions = RunOptions  # type: ignore[attr-defined]  # a module made by hand
sys.modules["statefulspark.job.start.start_job"] = fake

if __name__ == "__main__":
    from statefulspark.cli.main import app

    app(prog_name="statefulspark")
