"""The commands as a person types them, against a live server in this process; `run` is in test_cli_run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import START_MS, FakeJob, slots_of
from runtime.tests.checkpoint.sized import checkpoint_of
from typer.testing import CliRunner, Result

from statefulspark.api_server.run.connection_files import Connection, ConnectionFile
from statefulspark.cli.main import build_app
from statefulspark.coordinator.controls import JobError, JobFailing, JobState, JobStatus, MemoryChange
from statefulspark.coordinator.ongoing_work import PendingSnapshot, SlotRestoring
from statefulspark.coordinator.slots.status import SlotMemory
from statefulspark.errors import ConflictError


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
    assert rescaled.stderr == (
        "plan: 63 of 128 key groups change slot; their size is not known before the first checkpoint\n"
        "waiting for the job to run with 3 slots, for at most 600 s\n"
    )
    stopped = cli("stop", "--job", "turnaround", "--no-savepoint", "--drain")
    assert stopped.exit_code == 0, stopped.output
    assert "job FINISHED" in stopped.stdout
    assert stopped.stderr == "waiting for the job to stop, for at most 600 s\n"
    assert job.calls == [("trigger_savepoint", "s3://b/sp", 9.0), ("rescale", 3, 600.0), ("stop", False, None, True, 600.0)]


def test_stop_with_a_canonical_savepoint(home: Path, job: FakeJob) -> None:
    """The table names the format and the states that have no table, at 80 columns."""
    stopped = cli("stop", "--job", "turnaround", "--target", "s3://b/sp", "--format", "canonical")
    assert stopped.exit_code == 0, stopped.output
    assert job.calls == [("stop", None, "s3://b/sp", False, 600.0, "canonical")]
    assert "canonical" in stopped.stdout
    assert "states without a table" in stopped.stdout
    assert all(len(line) <= 80 for line in stopped.stdout.splitlines()), stopped.stdout


def test_a_rescale_says_what_it_does_before_and_how_long_it_took_after(home: Path, job: FakeJob) -> None:
    """The plan of a dry run changes nothing; bytes are those of the last checkpoint. Without a change there is no pause to tell."""
    job.base = checkpoint_of(128, [1 << 30, 3 << 30])
    planned = cli("rescale", "3", "--job", "turnaround", "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert all(len(line) <= 80 for line in planned.stdout.splitlines()), planned.stdout
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in planned.stdout.splitlines() if "│" in line]
    assert rows == [
        ["0", "0-42", "slot 0", "1.0 GiB", "21: 336.0 MiB", "-"],
        ["1", "43-85", "slot 1", "4.0 GiB", "42: 2.0 GiB", "21: 336.0 MiB"],
        ["2", "86-127", "slot 1", "3.0 GiB", "22: 1.0 GiB", "-"],
        ["all", "-", "-", "8.0 GiB", "85: 3.3 GiB", "21: 336.0 MiB"],
    ]
    document = json.loads(cli("rescale", "3", "--job", "turnaround", "--dry-run", "-o", "json").stdout)
    assert (document["fetch_bytes"], document["checkpoint"], len(document["slots"])) == (8 << 30, 7, 3)
    assert job.calls == []
    done = cli("rescale", "3", "--job", "turnaround")
    assert done.stderr.startswith(
        "plan: 63 of 128 key groups change slot; slots fetch 8.0 GiB, delete about 3.3 GiB and copy about 336.0 MiB of it (checkpoint 7)\n"
    )
    assert "rescaled from 2 to 3 slots" in done.stdout
    assert "3.9 s" in done.stdout
    again = cli("rescale", "3", "--job", "turnaround")
    assert again.stderr.startswith("the job already runs with 3 slots\n")
    assert "paused" not in again.stdout


def test_a_command_that_waits_says_how_far_the_driver_is(home: Path, job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line once, on stderr; stdout stays the answer."""
    monkeypatch.setattr("statefulspark.cli.common.waiting._EVERY_S", 0.02)
    job.hold = threading.Event()
    done: list[Result] = []
    command = threading.Thread(target=lambda: done.append(cli("savepoint", "--job", "turnaround", "-o", "json")))
    command.start()
    assert job.entered.wait(60)
    real = job.status
    for uploaded in (1 << 30, 3 << 30):
        job.change(
            pending_snapshot=PendingSnapshot(
                id=7, kind="savepoint", started_ms=START_MS, slots_done=1, slots=2, uploaded_bytes=uploaded, total_bytes=4 << 30
            )
        )
        asked = threading.Semaphore(0)

        def status(asked: threading.Semaphore = asked) -> JobStatus:
            asked.release()
            return real()

        monkeypatch.setattr(job, "status", status)
        for _ in range(3):
            assert asked.acquire(timeout=60)
    job.hold.set()
    command.join(60)
    assert json.loads(done[0].stdout)["kind"] == "savepoint"
    assert done[0].stderr.splitlines() == [
        "waiting for the savepoint, for at most 600 s",
        "savepoint 7: 1 of 2 slots done, 1.0 GiB of 4.0 GiB",
        "savepoint 7: 1 of 2 slots done, 3.0 GiB of 4.0 GiB",
    ]


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
    assert cli("stop", "--job", "turnaround", "--no-savepoint", "--format", "canonical").exit_code == 2


def test_finding_the_job(home: Path, url: str, tmp_path: Path) -> None:
    """By name; by URL with the token from the environment, a file it names, --token-file, or the job of this machine; else a sentence that says how."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    good: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("--job", "turnaround"), {"STATEFULSPARK_API_TOKEN": "the-token-of-another-job"}),
        (("--job", url), {"STATEFULSPARK_API_TOKEN": TOKEN}),
        (("--job", url), {"STATEFULSPARK_API_TOKEN_FILE": str(file)}),
        (("--job", url, "--token-file", str(file)), {}),
        (("--job", url), {}),
    ]
    for arguments, env in good:
        result = cli("status", *arguments, env=env)
        assert result.exit_code == 0, result.output
    bad: list[tuple[tuple[str, ...], dict[str, str], int, str]] = [
        (("--job", "http://127.0.0.1:9"), {}, 2, "--token-file"),
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
