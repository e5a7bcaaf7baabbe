"""A sink that raises: the driver says so, with the error, until a batch succeeds, and takes commands all the time."""

from __future__ import annotations

import pytest

from statefulspark.coordinator.controls import JobError, JobState
from statefulspark.errors import UnavailableError

from .oracles import by, counted, files, finals
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


def test_commands_do_not_wait_for_the_pause_before_a_restart(work: Work) -> None:
    """The query starts again after 20 s. A rescale is not refused as if another command ran, and a stop without a savepoint ends the job."""
    inputs = files(seed=22, number=1)
    work.entrypoint = "stubborn"
    work.spec = {"restartStrategy": {"type": "fixed-delay", "fixedDelay": {"attempts": 1000, "delay": "20s"}}}
    (work.folder / "broken").touch()
    work.write(inputs[0])
    job = work.start()
    wait_until(lambda: (failing := job.status().failing) is not None and "warehouse" in failing.error.message, 300, "the batch fails")
    with pytest.raises(UnavailableError, match="no checkpoint completed within 1 s"):
        job.rescale(3, timeout_s=1.0)
    assert job.stop(savepoint=False, target=None, drain=False, timeout_s=600.0) is None
    assert job.status().state is JobState.SUSPENDED

    (work.folder / "broken").unlink()
    work.spec = {}
    work.run()
    assert work.state("count", "total") == finals(counted(by("account", inputs)), 2)
