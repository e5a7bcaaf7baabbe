"""Shared jobs are handed on only as they were made."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.harness import shared_jobs
from e2e.harness.jobs import HUNDRED_MB, SMALL, CountingJob, Load
from e2e.harness.kubectl import Kubectl
from e2e.harness.shared_jobs import SharedJobs


class FakeJob(CountingJob):
    """A job whose status and executors are what a test says."""

    def __init__(self, name: str, load: Load) -> None:
        self.name, self.load = name, load
        self.now: dict[str, Any] = {"lifecycleState": "STABLE", "parallelism": 2}
        self.executors = 2

    def run_until_full(self, **changes: Any) -> dict[str, Any]:
        return self.now | changes

    def status(self) -> dict[str, Any]:
        return self.now

    def said(self) -> str:
        return str(self.now)

    def pods(self, component: str | None = None) -> list[dict[str, Any]]:
        assert component == "executor"
        return [{}] * self.executors


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What was spared each time when the jobs of the namespace were ended."""
    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr(shared_jobs, "end_jobs", lambda _, *but: seen.append(but))
    monkeypatch.setattr(shared_jobs, "RECOVERY_S", 0)
    return seen


@pytest.fixture
def shared(ended: list[tuple[str, ...]]) -> SharedJobs:
    """No cluster."""
    assert not ended
    return SharedJobs(Kubectl("nowhere"), FakeJob)


def test_a_job_is_handed_on(shared: SharedJobs, ended: list[tuple[str, ...]]) -> None:
    """What a test started beside it is not."""
    job = shared.take(SMALL)
    shared.tidy()
    assert shared.take(SMALL) is job
    assert ended == [(), (job.name,)]


def test_a_job_is_replaced(shared: SharedJobs, ended: list[tuple[str, ...]]) -> None:
    """After a failure or its end, for another load, and where a test asks for a new one; by one of another name."""
    jobs = [shared.take(SMALL)]
    shared.drop()
    jobs.append(shared.take(SMALL))
    jobs.append(shared.take(SMALL, new=True))
    jobs.append(shared.take(HUNDRED_MB))
    jobs[-1].status().clear()
    jobs.append(shared.take(HUNDRED_MB))
    assert len({job.name for job in jobs}) == len(jobs)
    assert [job.load for job in jobs] == [SMALL, SMALL, SMALL, HUNDRED_MB, HUNDRED_MB]
    assert set(ended) == {()}


@pytest.mark.parametrize("change", [{"lifecycleState": "DEPLOYED"}, {"parallelism": 3}, {"transition": {"step": "STOP"}}, None], ids=str)
def test_a_job_that_does_not_recover_is_told(shared: SharedJobs, change: dict[str, Any] | None) -> None:
    """The next test fails in its setup, and the one after it gets a new job."""
    job = shared.take(SMALL)
    if change is None:
        job.executors = 1  # type: ignore[attr-defined]  # FakeJob has it
    else:
        job.status().update(change)
    with pytest.raises(AssertionError, match="undisturbed"):
        shared.take(SMALL)
    assert shared.take(SMALL) is not job
