"""The termination message: it says how the job ended, fits what Kubernetes keeps, and only settled ends have one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.driver import termination
from statefulspark.errors import ConflictError, InvalidInputError, NotRestorableError, StatefulSparkError, UnavailableError
from statefulspark.job.controls import CheckpointInfo, JobError, JobState, JobStatus


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
