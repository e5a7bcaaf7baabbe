"""The termination message: it says how the job ended, fits what Kubernetes keeps, and only settled ends have one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.api_server.run import termination
from statefulspark.coordinator.controls import CheckpointInfo, JobError, JobState, JobStatus
from statefulspark.errors import ConflictError, InvalidInputError, NotRestorableError, StatefulSparkError, UnavailableError


def info(path: str, completed_ms: int) -> CheckpointInfo:
    return CheckpointInfo(id=1, path=path, batch=7, completed_ms=completed_ms, duration_ms=1, sync_ms=0, size_bytes=1, uploaded_bytes=1)


FAILED = JobStatus(
    job_id="j",
    name="n",
    state=JobState.FAILED,
    since_ms=0,
    parallelism=1,
    max_parallelism=2,
    attempt=1,
    batch=7,
    input_rows=0,
    output_rows=0,
)


def test_the_newer_of_savepoint_and_checkpoint_is_named() -> None:
    ended = replace(FAILED, last_checkpoint=info("file:///c", 5), last_savepoint=info("file:///s", 9))
    assert json.loads(termination.of_status(ended))["path"] == "file:///s"
    ended = replace(FAILED, last_checkpoint=info("file:///c", 50), last_savepoint=info("file:///s", 9))
    assert json.loads(termination.of_status(ended))["path"] == "file:///c"


@given(st.text(max_size=20_000))
def test_it_fits_and_keeps_the_end_of_the_text(text: str) -> None:
    message = termination.of_status(replace(FAILED, error=JobError(reason="UserFunction", message=text)))
    assert len(message) <= 4096
    kept = json.loads(message)["error"]["message"]
    assert text.endswith(kept.removeprefix("...")) or kept == text


@pytest.mark.parametrize(
    ("error", "is_settled"),
    [
        (InvalidInputError("wrong"), True),
        (NotRestorableError("does not fit"), True),
        (UnavailableError("storage"), False),
        (ConflictError("somebody else"), False),
    ],
)
def test_only_what_a_restart_would_not_change_is_settled(error: StatefulSparkError, is_settled: bool) -> None:
    assert termination.settled(error) is is_settled


@given(st.text(max_size=5000), st.text(min_size=1, max_size=3000), st.none() | st.sets(st.integers(0, 10**9), max_size=300))
def test_whatever_is_told_it_fits_and_the_error_keeps_its_room(text: str, path: str, kept: set[int] | None) -> None:
    """What there is no room for is left out as a whole, never cut; numbers of checkpoints are those that were given."""
    ended = replace(FAILED, last_checkpoint=info(path, 5), error=JobError(reason="UserFunction", message=text))
    message = termination.of_status(ended, kept)
    said = json.loads(message)
    assert len(json.dumps(path)) > 2000 or len(message) <= 4096
    assert said["path"] == path
    if "snapshot" in said:
        assert (said["snapshot"]["path"], said["snapshot"]["kind"]) == (path, "checkpoint")
    if kept is not None and "checkpoints" in said:
        ranges = [part.split("-") for part in said["checkpoints"].split(",") if part]
        assert {number for each in ranges for number in range(int(each[0]), int(each[-1]) + 1)} == kept


def test_numbers_are_told_as_ranges() -> None:
    said = json.loads(termination.of_status(FAILED, [9, 3, 4, 5, 7]))
    assert said["checkpoints"] == "3-5,7,9"
    assert "checkpoints" not in json.loads(termination.of_status(FAILED))
