"""`statefulspark run` as a person types it: a process of its own, with a fake job inside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from runtime.tests.api_server.test_cli import cli

MANIFEST = """\
apiVersion: statefulspark.io/v1alpha1
kind: StatefulSparkJob
metadata:
  name: turnaround
spec:
  job:
    script: pipeline.py
  parallelism: 2
  checkpointing:
    dir: file://{folder}/checkpoints
"""


class Run:
    """`statefulspark run` as a process, with Spark replaced by the fake job."""

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        self.home = folder / "home"
        manifest = folder / "job.yaml"
        manifest.write_text(MANIFEST.format(folder=folder))
        (folder / "pipeline.py").write_text("def build(job):\n    raise AssertionError\n")
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("run_with_fake.py")), "run", str(manifest), *arguments],
            env={**os.environ, "STATEFULSPARK_HOME": str(self.home), "COLUMNS": "80", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def connection(self) -> Path:
        return self.home / "jobs" / "turnaround.json"

    def wait_started(self) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while not self.connection.exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        found: dict[str, Any] = json.loads(self.connection.read_text())
        return found

    def end(self) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(timeout=60)
        finally:
            self.process.kill()
        return self.process.returncode, out, err


def test_a_run_to_its_end(tmp_path: Path) -> None:
    """Options reach the job; the closing status is the only thing on stdout; the log is JSON lines."""
    run = Run(tmp_path, "-o", "json", "--parallelism", "3", "--from", "file:///c/chk-7", "--until-idle", FAKE_END="FINISHED")
    code, out, err = run.end()
    assert code == 0, err
    status = json.loads(out)
    assert (status["state"], status["parallelism"], status["restored_from"]) == ("FINISHED", 3, "file:///c/chk-7")
    records = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert [record["event"] for record in records[:3]] == ["starting Spark and restoring state", "log of Spark", "job started"]
    assert records[1]["path"] == str(run.home / "logs" / "turnaround.log")
    assert {"timestamp", "level", "logger"} <= set(records[0])
    assert any(record["event"] == "progress" and record["state"] == "FINISHED" for record in records)
    assert not run.connection.exists()


def test_json_is_all_that_is_on_stdout(tmp_path: Path) -> None:
    """Whatever the user's code and its child processes print; tables come after it."""
    code, out, err = Run(tmp_path, "-o", "json", FAKE_END="FINISHED", FAKE_PRINTS="1").end()
    assert (code, json.loads(out)["state"]) == (0, "FINISHED")
    assert {"printed", "printed to a stream that was kept", "printed by a child"} <= set(err.splitlines())
    code, out, err = Run(tmp_path, FAKE_END="FINISHED", FAKE_PRINTS="1").end()
    assert code == 0
    assert "printed by a child\n" in out
    assert "printed" not in err
    code, out, err = Run(tmp_path, "-o", "json", "--parallelism", "999", FAKE_PRINTS="1").end()
    assert (code, out) == (2, "")


def test_a_closed_stdout_ends_no_job(tmp_path: Path) -> None:
    run = [
        "sh",
        "-c",
        'exec "$@" >&-',
        "sh",
        sys.executable,
        str(Path(__file__).with_name("run_with_fake.py")),
        "run",
        str(tmp_path / "job.yaml"),
    ]
    Run(tmp_path, "--parallelism", "999").end()  # writes the manifest
    environment = {**os.environ, "STATEFULSPARK_HOME": str(tmp_path / "home"), "FAKE_END": "FINISHED"}
    done = subprocess.run([*run, "-o", "json"], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_failed_run_prints_the_users_traceback_and_what_to_do(tmp_path: Path) -> None:
    """Exit code 1; the traceback and the next step are the end of stderr, without tables that would bury them."""
    run = Run(tmp_path, FAKE_END="FAILED", FAKE_ERROR="UserFunction")
    code, out, err = run.end()
    assert (code, out) == (1, "")
    assert f"error: job turnaround failed (UserFunction); Spark's log is {run.home / 'logs' / 'turnaround.log'}\nTraceback" in err
    assert 'File "flights.py", line 7, in process_element\nZeroDivisionError: division by zero\n' in err
    assert "it resumes after batch 41, nothing is lost" in err


def test_a_pod_has_no_log_file(tmp_path: Path) -> None:
    """`kubectl logs` shows everything: the driver's options are those that the operator gives it. ``-`` does the same anywhere."""
    for arguments in (("--master", "kubernetes"), ("--log-file", "-")):
        run = Run(tmp_path, *arguments, "--no-progress", FAKE_END="FAILED", FAKE_ERROR="UserFunction")
        code, _, err = run.end()
        assert code == 1
        assert "log of Spark" not in err
        assert "error: job turnaround failed (UserFunction)\n" in err
        assert not (run.home / "logs").exists()


def test_wrong_input_ends_with_2(tmp_path: Path) -> None:
    """A wrong option, and a manifest that is none; one sentence each."""
    code, out, err = Run(tmp_path, "--parallelism", "999").end()
    assert (code, out) == (2, "")
    assert "error: --parallelism: 999 is more than maxParallelism 128" in err
    assert "Traceback" not in err
    code, out, err = Run(tmp_path, "--log-file", str(tmp_path)).end()
    assert (code, out) == (2, "")
    assert (
        err
        == f"error: --log-file: {tmp_path} cannot be written (Is a directory). Name a file that can be written, or - to leave Spark's log on stderr\n"
    )
    absent = cli("run", str(tmp_path / "absent.yaml"))
    assert absent.exit_code == 2, absent.output
    assert "absent.yaml" in absent.stderr


@pytest.mark.parametrize("given", [True, False])
def test_the_token_is_nowhere_to_be_seen(tmp_path: Path, given: bool) -> None:
    """Not in arguments, not in the environment that Spark and the user's code inherit, not in the output; the API takes it."""
    own = {"STATEFULSPARK_API_TOKEN": "a-given-token-0123456789"} if given else {}
    run = Run(tmp_path, **own)
    found = run.wait_started()
    token = found["token"]
    assert (token == own.get("STATEFULSPARK_API_TOKEN")) is given
    listed = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert any("run_with_fake.py" in line for line in listed)
    assert not any(token in line for line in listed)
    environ = {"STATEFULSPARK_HOME": str(run.home), "STATEFULSPARK_API_TOKEN": ""}
    assert cli("status", "--job", "turnaround", env=environ).exit_code == 0
    assert cli("stop", "--job", "turnaround", env=environ).exit_code == 0
    code, out, err = run.end()
    assert code == 0, err
    assert "environment has a token: False" in err
    assert token not in out + err
    assert "Run the manifest again to resume. Its state is kept in file:///state/turnaround/savepoint-1." in err


def test_the_log_that_the_api_shows_has_none_of_our_secrets(tmp_path: Path) -> None:
    """Though a pipeline logs the token, the keys of the storage and a URL with a password. They are in the manifest or in the environment."""
    token, key, session = ("a-token-" + "0123456789", "a-storage-key-" + "0123456789", "a-session-token-" + "0123456789")
    text = f"token {token}, key {key}, session {session}, s3://me:my-password@bucket/state, 42 flights"
    secrets = {"STATEFULSPARK_API_TOKEN": token, "AWS_SECRET_ACCESS_KEY": key, "AWS_SESSION_TOKEN": session}
    run = Run(tmp_path, "--no-progress", FAKE_LOGS=text, **secrets)
    run.wait_started()
    environ = {"STATEFULSPARK_HOME": str(run.home), "STATEFULSPARK_API_TOKEN": ""}
    shown = cli("logs", "--job", "turnaround", "-o", "json", env=environ)
    assert shown.exit_code == 0, shown.output
    records = {record["event"]: record for record in map(json.loads, shown.stdout.splitlines())}
    hidden = "token ***, key ***, session ***, s3://***@bucket/state, 42 flights"
    assert records[hidden]["facts"]["fact"] == hidden
    assert "job started" in records, "the driver's own records are there"
    assert not any(secret in shown.stdout for secret in (token, key, session, "my-password"))
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 0


def test_sigterm_stops_with_a_checkpoint(tmp_path: Path) -> None:
    """What Kubernetes does to a pod: the state is checkpointed, exit code 0, no connection file left."""
    run = Run(tmp_path, "-o", "json")
    run.wait_started()
    run.process.send_signal(signal.SIGTERM)
    code, out, err = run.end()
    assert code == 0, err
    status = json.loads(out)
    assert (status["state"], status["last_checkpoint"]["kind"]) == ("SUSPENDED", "checkpoint")
    assert "SIGTERM: stopping with a checkpoint" in err
    assert not run.connection.exists()


def test_a_second_signal_ends_a_stop_that_hangs(tmp_path: Path) -> None:
    """At once, with the shell's code for the signal, and with the name free again."""
    run = Run(tmp_path, FAKE_STOP_HANGS="1")
    run.wait_started()
    deadline = time.monotonic() + 60
    while run.process.poll() is None and time.monotonic() < deadline:
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.7)
    code, _, err = run.end()
    assert code == 130, err
    assert "stopped immediately" in err
    assert not run.connection.exists()


def test_a_second_start_of_the_same_job_is_refused(tmp_path: Path) -> None:
    """It would fence the first one off; the person is told how to stop that one."""
    run = Run(tmp_path)
    before = run.wait_started()
    code, _, err = Run(tmp_path).end()
    assert code == 1
    assert "statefulspark stop --job turnaround" in err
    assert json.loads(run.connection.read_text()) == before
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 0
