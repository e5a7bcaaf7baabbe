"""The commands as a person types them: against a live server in this process, and `run` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import START_MS, FakeJob, slots_of
from typer.testing import CliRunner, Result

from statefulspark.api_server.connection_files import Connection, ConnectionFile
from statefulspark.cli.main import build_app
from statefulspark.coordinator.controls import JobError, JobFailing, JobState, MemoryChange, SlotMemory
from statefulspark.coordinator.ongoing_work import PendingSnapshot, SlotRestoring
from statefulspark.errors import ConflictError

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


@pytest.fixture
def home(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("STATEFULSPARK_HOME", str(tmp_path))
    monkeypatch.delenv("STATEFULSPARK_API_TOKEN", raising=False)
    monkeypatch.delenv("STATEFULSPARK_API_TOKEN_FILE", raising=False)
    with ConnectionFile(tmp_path, "turnaround") as claim:
        claim.write(Connection(url, TOKEN))
        yield tmp_path


def cli(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(build_app(), list(arguments), env={"COLUMNS": "80", **(env or {})})


def test_status_as_json_is_the_drivers_answer(home: Path, job: FakeJob) -> None:
    """Complete, one line, nothing else on stdout."""
    result = cli("status", "--job", "turnaround", "-o", "json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["state"] == "RUNNING"
    assert [(slot["first"], slot["last"]) for slot in answer["slots"]] == [(0, 63), (64, 127)]
    assert result.stdout.count("\n") == 1


def test_tables_fit_a_terminal_of_80_columns(home: Path, job: FakeJob) -> None:
    """With the longest values there may be; paths stay whole on lines of their own, as they are copied."""
    job.trigger_checkpoint(1)
    target = "s3://" + "very-long-bucket-name/" * 6
    job.trigger_savepoint(target, 1)
    slots = tuple(
        type(slot)(
            slot=slot.slot, first=slot.first, last=slot.last, state="RESTORING", epoch=12_345, executor="driver", host="a-host-with-a-very-long-name.example",
            pid=4_194_304, restarts=77, rows_in=10**12, store_bytes=10**13, cache_hit_ratio=0.12345,
            memory=SlotMemory(
                rss_bytes=10**11, pss_bytes=10**11, baseline_bytes=1, process_budget_bytes=10**11, managed_bytes=10**11, used_bytes=10**11,
            ),
        )
        for slot in slots_of(3, 32_768)
    )  # fmt: skip
    job.change(
        max_parallelism=32_768, slots=slots, input_rows=10**15, watermarks={"an-operator-with-a-really-long-uid-" * 2: 2**63 - 1},
        restored_from=target + "chk-1", job_id="j" * 60,
    )  # fmt: skip
    result = cli("status", "--job", "turnaround")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith(("last ", "restored from: "))), result.stdout
    assert f"restored from: {target}chk-1" in lines
    assert "a-host-with-a-very-lon~" in result.stdout
    assert "21846-32767" in result.stdout
    assert "end of time" in result.stdout
    assert "95367 / 95367" in result.stdout
    assert "12.3%" in result.stdout


def test_status_says_what_takes_time_now(home: Path, job: FakeJob) -> None:
    """Per slot, what it has downloaded of its state; slots that have done their part of a savepoint. Programs get the bytes."""
    first, second = job.status().slots
    second = replace(second, state="RESTORING", restoring=SlotRestoring(downloaded_bytes=1_288_490_189, total_bytes=4 << 30))
    uploaded = {"uploaded_bytes": 3 << 29, "total_bytes": 4 << 30}
    pending = PendingSnapshot(id=7, kind="savepoint", started_ms=START_MS, slots_done=1, slots=2, **uploaded)
    job.change(slots=(first, second), pending_snapshot=pending)
    lines = cli("status", "--job", "turnaround").stdout.splitlines()
    assert "restoring slot 1: 1.2 GiB of 4.0 GiB" in lines
    assert "savepoint 7: 1 of 2 slots done, 1.5 GiB of 4.0 GiB" in lines
    answer = json.loads(cli("status", "--job", "turnaround", "-o", "json").stdout)
    assert [slot["restoring"] for slot in answer["slots"]] == [None, {"downloaded_bytes": 1_288_490_189, "total_bytes": 4 << 30}]
    assert answer["pending_snapshot"] == {"id": 7, "kind": "savepoint", "started_ms": START_MS, "slots_done": 1, "slots": 2} | uploaded


def test_savepoint_rescale_stop(home: Path, job: FakeJob) -> None:
    """Each passes its options on and shows what came of it."""
    taken = cli("savepoint", "--job", "turnaround", "--target", "s3://b/sp", "--timeout", "9")
    assert taken.exit_code == 0, taken.output
    assert "path: s3://b/sp/savepoint-1" in taken.stdout
    assert "2.9 MiB" in taken.stdout
    assert taken.stderr == "waiting for the savepoint, for at most 9 s\n"
    rescaled = cli("rescale", "3", "--job", "turnaround", "-o", "json")
    assert json.loads(rescaled.stdout)["parallelism"] == 3
    assert rescaled.stderr == "waiting for the job to run with 3 slots, for at most 600 s\n"
    stopped = cli("stop", "--job", "turnaround", "--no-savepoint", "--drain")
    assert stopped.exit_code == 0, stopped.output
    assert "job FINISHED" in stopped.stdout
    assert stopped.stderr == "waiting for the job to stop, for at most 600 s\n"
    assert job.calls == [("trigger_savepoint", "s3://b/sp", 9.0), ("rescale", 3, 600.0), ("stop", False, None, True, 600.0)]


def test_a_canonical_savepoint(home: Path, job: FakeJob) -> None:
    """The format is passed on; states without a table are listed, within 80 columns and whole in JSON."""
    shown = cli("savepoint", "--job", "turnaround", "--format", "canonical")
    assert shown.exit_code == 0, shown.output
    assert "canonical" in shown.stdout
    assert "states without a table" in shown.stdout
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    answer = json.loads(cli("savepoint", "--job", "turnaround", "--format", "canonical", "-o", "json").stdout)
    assert answer["format"] == "canonical"
    assert answer["without_table"] == [{"uid": "u" * 40, "state": "s" * 40, "reason": "r" * 99}]
    assert job.calls == [("trigger_savepoint", None, 600.0, "canonical")] * 2
    refused = cli("savepoint", "--job", "turnaround", "--format", "parquet")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert len(job.calls) == 2


def test_tune_shows_the_split_of_memory_or_changes_it(home: Path, job: FakeJob) -> None:
    """Sizes as people write them; bounds are checked before the driver is asked; warnings are said."""
    shown = cli("tune", "--job", "turnaround")
    assert shown.exit_code == 0, shown.output
    assert "128.0 MiB of 128.0 MiB" in shown.stdout
    assert "the manifest's" in shown.stdout
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    tuned = cli("tune", "--job", "turnaround", "--managed", "96Mi", "--high-prio-pool-ratio", "0", "--timeout", "5", "-o", "json")
    assert json.loads(tuned.stdout)["managed_bytes"] == 96 << 20
    assert job.calls == [("tune_memory", MemoryChange(managed_bytes=96 << 20, high_prio_pool_ratio=0.0), 5.0)]
    for wrong in (("--managed", "96"), ("--managed", "0"), ("--write-buffer-ratio", "0"), ("--high-prio-pool-ratio", "1")):
        refused = cli("tune", "--job", "turnaround", *wrong)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"error: {wrong[0]}: ")


def test_refusals_are_one_sentence_and_an_exit_code(home: Path, job: FakeJob) -> None:
    """2 when the input is wrong, 1 when the job would not; on stderr, nothing on stdout."""
    too_many = cli("rescale", "129", "--job", "turnaround")
    assert (too_many.exit_code, too_many.stdout) == (2, "")
    assert "max_parallelism 128" in too_many.stderr
    job.failures = {"trigger_savepoint": ConflictError("a rescale is under way")}
    conflict = cli("savepoint", "--job", "turnaround")
    assert (conflict.exit_code, conflict.stderr) == (1, "waiting for the savepoint, for at most 600 s\nerror: a rescale is under way\n")
    assert cli("stop", "--job", "turnaround", "--no-savepoint", "--target", "x").exit_code == 2


def test_finding_the_job(home: Path, url: str, tmp_path: Path) -> None:
    """By name; by URL with the token from the environment, a file it names, or --token-file; else a sentence that says how."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    good: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("--job", "turnaround"), {"STATEFULSPARK_API_TOKEN": "the-token-of-another-job"}),
        (("--job", url), {"STATEFULSPARK_API_TOKEN": TOKEN}),
        (("--job", url), {"STATEFULSPARK_API_TOKEN_FILE": str(file)}),
        (("--job", url, "--token-file", str(file)), {}),
    ]
    for arguments, env in good:
        result = cli("status", *arguments, env=env)
        assert result.exit_code == 0, result.output
    bad: list[tuple[tuple[str, ...], dict[str, str], int, str]] = [
        (("--job", url), {}, 2, "--token-file"),
        (("--job", url), {"STATEFULSPARK_API_TOKEN": "wrong-token-wrong-token"}, 2, "rejected the token"),
        (("--job", "another"), {}, 2, "running: turnaround"),
        (("--job", "http://127.0.0.1:9"), {"STATEFULSPARK_API_TOKEN": TOKEN}, 1, "no response from"),
        (("--job", "turnaround", "--token-file", str(tmp_path / "absent")), {}, 2, f"--token-file: {tmp_path / 'absent'}"),
    ]
    for arguments, env, code, text in bad:
        result = cli("status", *arguments, env=env)
        assert (result.exit_code, result.stdout) == (code, ""), result.output
        assert text in result.stderr
        assert "Traceback" not in result.stderr
        assert TOKEN not in result.stderr


def test_status_of_a_job_whose_batches_fail_shows_the_last_error(home: Path, job: FakeJob) -> None:
    """How often in a row, since when, and the error; the job itself runs."""
    error = JobError(reason="Unavailable", message="the function of foreachBatch raised ConnectionError: closed")
    job.change(failing=JobFailing(failures=7, since_ms=START_MS, error=error))
    result = cli("status", "--job", "turnaround")
    assert "failing: 7 times in a row since 20" in result.stdout
    assert "Unavailable: the function of foreachBatch raised ConnectionError: closed" in result.stdout


def test_status_of_a_failed_job_shows_the_traceback(home: Path, job: FakeJob) -> None:
    """The user's own words come through."""
    job.change(state=JobState.FAILED, error=JobError(reason="UserFunction", message="ZeroDivisionError: division by zero"))
    result = cli("status", "--job", "turnaround")
    assert "failed: UserFunction: ZeroDivisionError: division by zero" in result.stdout


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
