"""The commands against a job that ``statefulspark run`` runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .oracles import by, counted, files, finals
from .work import Command, Work, wait_until


def _canonical(asked: Callable[..., dict[str, Any]], work: Work, totals: list[Any]) -> None:
    """A canonical savepoint of the running job."""
    savepoint = asked("savepoint", "--job", "job", "--format", "canonical", "--target", f"{work.folder}/canonical")
    assert (savepoint["format"], savepoint["batch"], savepoint["without_table"]) == ("canonical", 0, [])
    assert asked("status", "--job", "job")["last_savepoint"] == savepoint
    kept = asked("history", "--job", "job")["snapshots"]
    assert [(each["path"], each["format"]) for each in kept if each["format"] == "canonical"] == [(savepoint["path"], "canonical")]
    assert asked("verify", savepoint["path"])["sound"]
    (listed,) = asked("checkpoints", f"{work.folder}/canonical")["checkpoints"]
    assert (listed["format"], listed["status"]) == ("canonical", "complete")
    assert work.state("count", "total", savepoint["path"]) == totals


def _queried(asked: Callable[..., dict[str, Any]], totals: list[Any]) -> None:
    """Single keys of the running job, each from the slot that has it."""
    slots = set()
    for key, total in totals:
        answer = asked("state", "--job", "job", "--uid", "count", "--state", "total", "--key", key)
        assert [entry["value"] for entry in answer["entries"]] == [total]
        slots.add(answer["slot"])
    assert slots == {0, 1}


def _rescaled(asked: Callable[..., dict[str, Any]], moved: int) -> dict[str, Any]:
    """To 3 slots: the plan of before, and what was done, with the pause."""
    began = time.monotonic()
    plan = asked("rescale", 3, "--job", "job", "--dry-run")
    rescaled = asked("rescale", 3, "--job", "job")
    done = rescaled["last_rescale"]
    for each in (plan, done):
        assert [each[name] for name in ("from_parallelism", "to_parallelism", "moved_key_groups")] == [2, 3, moved]
    assert moved == 63
    assert done["fetch_bytes"] >= done["cut_bytes"] > 0
    assert 0 < done["pause_ms"] < (time.monotonic() - began) * 1000
    return rescaled


def _stopped(asked: Callable[..., dict[str, Any]], command: Command, work: Work) -> str:
    """With a canonical savepoint; its path."""
    refused = command("stop", "--job", "job", "--no-savepoint", "--format", "canonical")
    assert (refused.exit_code, "--format" in refused.stderr) == (2, True)
    stopped = asked("stop", "--job", "job", "--format", "canonical", "--target", f"{work.folder}/last")
    assert (stopped["state"], stopped["checkpoint"]["format"]) == ("SUSPENDED", "canonical")
    path: str = stopped["checkpoint"]["path"]
    return path


def _ended(asked: Callable[..., dict[str, Any]], command: Command, work: Work, path: str) -> None:
    """What is left of the job once it has ended: its last run and its history, but nothing to steer."""
    gone = command("savepoint", "--job", "job")
    assert gone.exit_code == 2
    assert "job" in gone.stderr

    ended = asked("status", "--job", "job")
    assert (ended["state"], ended["error"], ended["advice"].startswith("Run the manifest again")) == ("SUSPENDED", None, True)
    for named in ("job", ended["directory"], str(work.folder / "job.yaml")):
        kept = asked("history", named)
        assert [each["path"] for each in kept["snapshots"]][-1] == path
        assert kept["events"][-1]["kind"] == "state"


def test_every_command_against_a_running_job(work: Work, command: Command) -> None:
    """status, savepoint, checkpoints, verify, state, key-groups, rescale and stop; what they print is JSON with -o json."""

    def asked(*arguments: object) -> dict[str, Any]:
        result = command(*arguments, "-o", "json")
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    inputs = files(seed=11, number=2)
    expected = counted(by("account", inputs))
    work.write(inputs[0])
    run = [str(Path(sys.executable).with_name("statefulspark")), "run", str(work.write_manifest()), "--no-progress", "-o", "json"]
    environment = os.environ | {"TMPDIR": str(work.folder / "tmp")}
    with (work.folder / "log").open("wb") as log, subprocess.Popen(run, env=environment, stdout=subprocess.PIPE, stderr=log) as process:
        try:
            work.wait_rows(40, 120)
            wait_until(lambda: bool(asked("status", "--job", "job")["batch"] == 0), 30, "batch 0 is committed")
            status = asked("status", "--job", "job")
            assert (status["state"], status["parallelism"], status["input_rows"], status["output_rows"]) == ("RUNNING", 2, 40, 40)
            assert [(slot["first"], slot["last"], slot["state"]) for slot in status["slots"]] == [(0, 63, "RUNNING"), (64, 127, "RUNNING")]

            savepoint = asked("savepoint", "--job", "job")
            assert (savepoint["kind"], savepoint["batch"]) == ("savepoint", 0)
            assert asked("verify", savepoint["path"])["sound"]
            (listed,) = asked("checkpoints", f"{work.folder}/savepoints")["checkpoints"]
            assert (listed["kind"], listed["status"], listed["url"]) == ("savepoint", "complete", savepoint["path"])

            before = finals(counted(by("account", [inputs[0]])), 2)
            _canonical(asked, work, before)
            _queried(asked, before)

            groups = asked("key-groups", "--max-parallelism", 128, "--parallelism", 2, "--to", 3)
            rescaled = _rescaled(asked, groups["moves"])
            assert [{name: slot[name] for name in ("slot", "first", "last")} for slot in rescaled["slots"]] == groups["to_ranges"]

            work.write(inputs[1])
            work.wait_rows(80)
            path = _stopped(asked, command, work)
            last = json.loads(process.communicate(timeout=60)[0])
        finally:
            process.terminate()
            process.wait(60)
    assert process.returncode == 0, (work.folder / "log").read_text()
    assert last["state"] == "SUSPENDED"
    assert last["last_savepoint"]["path"] == path
    assert work.rows() == sorted(expected)

    sizes = asked("state", path)["states"]
    totals = finals(expected, 2)
    assert {(each["uid"], each["name"], each["kind"], each["entries"]) for each in sizes if each["entries"]} == {
        ("count", "number", "value", len(totals)),
        ("count", "total", "value", len(totals)),
    }
    key, total = totals[0]
    (entry,) = asked("state", path, "--uid", "count", "--state", "total", "--key", key)["entries"]
    assert (entry["key"], entry["value"]) == (key, total)
    _ended(asked, command, work, path)
