"""A sink that raises: the driver says so, with the error, until a batch succeeds."""

from __future__ import annotations

import pytest

from statefulspark.coordinator.controls import JobError, JobState

from .oracles import files
from .work import Work, wait_until


@pytest.mark.exhaustive
def test_a_job_whose_batches_fail_says_so_until_one_succeeds(work: Work) -> None:
    """How often in a row, since when, and the sink's own error; an idle job and one whose batches succeed say nothing of the kind."""
    inputs = files(seed=21, number=2)
    work.entrypoint = "stubborn"
    work.spec = {"restartStrategy": {"type": "fixed-delay", "fixedDelay": {"attempts": 1000, "delay": "100ms"}}}
    job = work.start()
    wait_until(lambda: job.status().idle, 240, "the job waits for its first rows")
    assert job.status().failing is None

    before = job.status().committed_batches
    (work.folder / "broken").touch()
    work.write(inputs[0])
    wait_until(lambda: (failing := job.status().failing) is not None and failing.failures >= 3, 240, "three failures")
    status = job.status()
    assert status.state is JobState.RUNNING
    assert status.failing is not None
    assert status.failing.error == JobError(
        reason="Unavailable", message="the function of foreachBatch raised ConnectionError: the warehouse is closed"
    )
    assert status.failing.since_ms >= status.since_ms
    assert (status.idle, status.committed_batches) == (False, before)
    assert {one.name: one.value for one in job.metrics()}["restarts"] >= 2

    (work.folder / "broken").unlink()
    wait_until(lambda: job.status().failing is None, 240, "the batch succeeds")
    work.write(inputs[1])
    wait_until(lambda: job.status().committed_batches == before + 2, 240, "both batches are committed")
    wait_until(lambda: job.status().idle, 240, "the job waits for more")
