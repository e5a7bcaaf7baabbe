"""Signals that end a driver, to the process and to its process group, at every stage: the driver leaves in time and nothing is lost."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .harness import Ledger, ending, wait_until

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1200)]

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TARGETS = ("process", "group")
RUNNING = ("batch", "checkpoint", "rescale")
IN_MAKE_TEST = {(signal.SIGTERM, "group", "rescale")}


def send(ledger: Ledger, number: signal.Signals, target: str) -> None:
    assert ledger.process is not None
    (os.killpg if target == "group" else os.kill)(ledger.process.pid, number)


def ended(ledger: Ledger) -> int:
    """The driver's exit code; all that it started ends with it."""
    assert ledger.process is not None
    code = ledger.process.wait(timeout=120)
    wait_until(lambda: not ledger.processes(), 30, "the end of the JVM")
    return code


def raw_log(ledger: Ledger) -> str:
    return (ledger.folder / f"log-{ledger.starts}").read_text(errors="replace")


def clean_log(ledger: Ledger) -> str:
    log = raw_log(ledger)
    # A Python data source whose query is stopped, by a rescale for example, complains in its own process, wherever that has PySpark from.
    traces = re.findall(r"^Traceback.*\n(?:[ \t].*\n)*", log, re.MULTILINE)
    assert [trace for trace in traces if "pyspark.zip" not in trace and "python_streaming_source_runner" not in trace] == []
    assert "Py4J" not in log
    return log


def reach(ledger: Ledger, stage: str) -> None:
    """Bring a running driver to a stage."""
    ledger.wait_for_batch(4)
    if stage == "checkpoint":
        ledger.post("checkpoints")
    elif stage == "rescale":
        ledger.post("rescale", {"parallelism": 3})
        wait_until(lambda: (ledger.status() or {}).get("state") == "RESCALING", 240, "the rescale")


def cases() -> list[object]:
    return [
        pytest.param(*case, id="-".join((case[0].name, *case[1:])), marks=() if case in IN_MAKE_TEST else (pytest.mark.exhaustive,))
        for case in itertools.product(SIGNALS, TARGETS, RUNNING)
    ]


@pytest.mark.parametrize(("number", "target", "stage"), cases())
def test_a_signal_stops_a_running_job_with_its_last_state(
    tmp_path: Path, java_options: str, number: signal.Signals, target: str, stage: str
) -> None:
    """Exit code 0, SUSPENDED, a checkpoint of the last batch; the next driver goes on, and every row counts once."""
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=301, files=14, interval="1h")
    with ending(ledger):
        ledger.start("-o", "json")
        reach(ledger, stage)
        send(ledger, number, target)
        assert ended(ledger) == 0
        log = clean_log(ledger)
        status = json.loads(next(line for line in log.splitlines() if line.startswith('{"job_id"')))
        assert status["state"] == "SUSPENDED"
        assert status["error"] is None
        assert {slot["state"] for slot in status["slots"]} == {"STOPPED"}
        assert status["last_checkpoint"]["batch"] == status["batch"]
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["process", "group"])
def test_a_signal_while_spark_starts_ends_the_process_at_once(tmp_path: Path, java_options: str, target: str) -> None:
    """128 + its number and one sentence, whatever the start is at; nothing of the next start is lost."""
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=302, files=4)
    stages: tuple[Callable[[], bool], ...] = (
        lambda: len(ledger.processes()) >= 1,  # Python imports
        lambda: len(ledger.processes()) >= 2,  # the JVM is coming up
        (tmp_path / "storage" / "ledger").exists,  # the attempt is being claimed
    )
    with ending(ledger):
        for number, stage in zip(SIGNALS, stages, strict=True):
            ledger.start()
            wait_until(stage, 240, "the stage")
            if stage is stages[0]:
                wait_until((ledger.home / "jobs" / "ledger.lock").exists, 240, "the run's own signal handlers")
            send(ledger, number, target)
            assert ended(ledger) == 128 + number
            assert "stopped immediately" in clean_log(ledger)
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()


@pytest.mark.exhaustive
def test_timeout_sends_its_signal_twice(tmp_path: Path, java_options: str) -> None:
    """``timeout`` signals its child and then the group: one request, not two."""
    ledger = Ledger(
        folder=tmp_path, java_options=java_options, seed=303, files=30, interval="1h", prefix=("timeout", "--signal=TERM", "20")
    )
    with ending(ledger):
        ledger.start()
        assert ledger.process is not None
        assert ledger.process.wait(timeout=120) == 124
        assert "stopped immediately" not in clean_log(ledger)
        ledger.prefix = ()
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()


@pytest.mark.exhaustive
def test_a_jvm_that_dies_while_the_job_stops_is_part_of_the_stop(tmp_path: Path, java_options: str) -> None:
    """SIGKILL of the JVM right after SIGTERM: exit code 0 and a warning instead of a checkpoint; without the SIGTERM, a failure that says so."""
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=304, files=14, interval="1h")
    with ending(ledger):
        ledger.start()
        ledger.wait_for_batch(3)
        kill_jvm(ledger)
        assert ended(ledger) == 1
        told = raw_log(ledger).rpartition("error: ")[2]
        assert told.splitlines()[:2] == [
            "job ledger failed (JvmLost)",
            "Spark's JVM was killed by signal 9. If the kernel killed it for lack of memory, raise spec.driver.memory",
        ]

        ledger.start()
        ledger.wait_for_batch(6)
        send(ledger, signal.SIGTERM, "process")
        kill_jvm(ledger)
        assert ended(ledger) == 0
        assert "Spark's JVM ended before the final checkpoint" in raw_log(ledger)
        assert "error: " not in raw_log(ledger)
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()


def kill_jvm(ledger: Ledger) -> None:
    assert ledger.process is not None
    for process in ledger.processes():
        if process.ppid() == ledger.process.pid and "java" in process.name():
            process.kill()
            return
    raise AssertionError("no JVM")


def test_a_driver_that_nohup_started_ignores_the_hang_up(tmp_path: Path) -> None:
    """Whoever wanted SIGHUP ignored, gets it."""
    script = "import signal; from statefulspark.api_server.run.signals import StopSignals\nwith StopSignals(): print(repr(signal.getsignal(signal.SIGHUP)))"
    result = subprocess.run(["nohup", sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "SIG_IGN" in result.stdout
