"""What a job refuses to start with: the text names field and remedy, and nothing has been touched."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from statefulspark.coordinator.controls import JobState
from statefulspark.errors import InvalidInputError, NotRestorableError, UnavailableError

from .oracles import by, counted, files, finals
from .work import Command, Work, wait_until


# state/test_keys_and_layout.py and process/test_step_spec.py refuse each type without Spark.
@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("map", "map<string,bigint>"),
        pytest.param("array", "array<string>", marks=pytest.mark.exhaustive),
        pytest.param("double", "double", marks=pytest.mark.exhaustive),
    ],
)
def test_a_key_whose_equal_values_may_differ_in_bytes_is_refused(work: Work, kind: str, shown: str) -> None:
    """The storage folder is not even made a job's."""
    work.entrypoint = f"by_{kind}"
    with pytest.raises(InvalidInputError, match=rf"^key_by: column 'k' of type {shown} cannot be a key.*casting to string$"):
        work.start()
    assert list(work.store().list("")) == []


@pytest.mark.exhaustive
def test_a_job_that_does_not_fit_its_state_is_refused_and_nothing_is_lost(work: Work) -> None:
    """Another uid, key, name of a state, number of key groups, too many slots, another job's folder: refused; undone, the job goes on; allowed, anew."""
    inputs = files(seed=6, number=3)
    work.write(inputs[0])
    work.spec = {"maxParallelism": 8}
    work.run()
    before = [info.key for info in work.store().list("")]

    work.entrypoint = "renamed"
    with pytest.raises(
        NotRestorableError, match=r"^uid: .*contains state of uid 'count', but the pipeline has only 'count-2'.*allowNonRestoredState"
    ):
        work.start()
    work.entrypoint = "other_key"
    with pytest.raises(
        NotRestorableError, match=r"^key_by: .*was \(account string\) when its state was stored, and is \(shop string\) now"
    ):
        work.start()
    work.entrypoint = "counts"
    work.spec = {"maxParallelism": 16}
    with pytest.raises(NotRestorableError, match=r"^spec.maxParallelism: .* has 8 key groups.*the manifest sets 16\. Set it to 8"):
        work.start()
    work.spec = {"maxParallelism": 8}
    with pytest.raises(InvalidInputError, match=r"^parallelism: 9 slots cannot share 8 key groups\. Set it to at most"):
        work.start(parallelism=9)
    work.spec = {}
    with pytest.raises(InvalidInputError, match=r"^parallelism: 9 slots cannot share 8 key groups\. Keep it at or below 8"):
        work.start(parallelism=9)
    shutil.copytree(work.folder / "storage" / "job", work.folder / "storage" / "other")
    other = Work(folder=work.folder, name="other")
    with pytest.raises(NotRestorableError, match=r"^checkpointing.dir: .*other belongs to the job 'job', not to 'other'\. Give each job"):
        other.start()
    assert [info.key for info in work.store().list("")] == before
    assert [info.key for info in other.store().list("")] == before

    work.write(inputs[1])
    work.entrypoint = "misspelt"
    error = work.run_to_failure()
    assert "state 'totl' of uid 'count': it is new and would start empty, and the restored state 'total'" in error.message
    work.entrypoint = "counts"
    work.run()  # maxParallelism is not given: the state's own counts
    expected = counted(by("account", inputs[:2]))
    assert work.rows() == sorted(expected)
    assert work.state("count", "total") == finals(expected, 2)

    work.entrypoint = "renamed"
    work.spec = {"allowNonRestoredState": True}
    work.write(inputs[2])
    work.run()
    anew = counted(by("account", inputs[2:]))
    assert work.rows() == sorted(expected + anew)
    assert work.state("count-2", "total") == finals(anew, 2)


def test_storage_that_cannot_be_reached_is_told_before_anything_starts(work: Work) -> None:
    """A closed port and a folder below a file; Spark is not started for that."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    keys = {"region": "us-east-1", "accessKeyId": "a", "secretAccessKey": "b"}
    work.checkpointing = {"dir": "s3://bucket/jobs", "storage": {"endpoint": f"http://127.0.0.1:{port}"} | keys}
    with pytest.raises(UnavailableError, match=r"Check that checkpointing\.storage\.endpoint is correct and reachable; gave up"):
        work.start()
    (work.folder / "file").write_text("no folder")
    work.checkpointing = {"dir": f"file://{work.folder}/file/jobs"}
    with pytest.raises((UnavailableError, InvalidInputError), match=r"checkpointing\.dir: "):
        work.start()


def test_a_field_the_manifest_does_not_have_is_named(work: Work, command: Command) -> None:
    """The command ends with 2 and makes no folder."""
    work.spec = {"paralelism": 3}
    result = command("run", work.write_manifest())
    assert result.exit_code == 2
    assert "spec.paralelism" in result.stderr
    assert "parallelism" in result.stderr.replace("spec.paralelism", "")
    assert not (work.folder / "storage").exists()


@pytest.mark.exhaustive
def test_a_second_driver_of_a_job_fences_the_first(work: Work) -> None:
    """The newer one takes over with all state; the older one stops at its next batch without having changed anything."""
    inputs = files(seed=7)
    work.write(inputs[0])
    first = work.start()
    work.wait_rows(len(inputs[0]))
    work.write(inputs[1])
    work.wait_rows(len(inputs[0]) + len(inputs[1]))
    path = work.write_manifest()
    environment = os.environ | {"STATEFULSPARK_HOME": str(work.folder / "home"), "TMPDIR": str(work.folder / "tmp")}
    command = [str(Path(sys.executable).with_name("statefulspark")), "run", str(path), "--no-progress", "--api-port", "0"]
    with subprocess.Popen(command, env=environment, cwd=work.folder, stderr=subprocess.DEVNULL) as second:
        try:
            claim = work.folder / "storage" / "job" / "attempts" / "00000002-start"
            wait_until(claim.exists, 240, "the second driver has claimed the job")
            work.write(inputs[2])
            wait_until(lambda: first.status().state.final, 240, "the first driver has stopped")
            work.wait_rows(sum(map(len, inputs)))
        finally:
            second.terminate()
            second.wait(60)
    assert second.returncode == 0
    status = first.status()
    assert status.state is JobState.FAILED
    assert status.error is not None
    assert status.error.reason == "Fenced"
    expected = counted(by("account", inputs))
    assert work.rows() == sorted(expected)
    assert work.state("count", "total") == finals(expected, 2)
