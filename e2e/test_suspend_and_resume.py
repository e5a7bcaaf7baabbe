"""A suspended job has no pods and keeps its state."""

from __future__ import annotations

import pytest

from e2e.harness.jobs import CountingJob
from e2e.harness.kubectl import wait_for
from e2e.harness.timeouts import GONE_S


@pytest.mark.slow
def test_suspend_and_resume(job: CountingJob) -> None:
    """Suspending takes all pods away and says Ready; resuming goes on with the next number."""
    job.change(state="suspended")
    job.wait_state("SUSPENDED")
    wait_for("no pods are left", GONE_S, lambda: not job.pods(), job.said)
    assert job.condition("Ready")["status"] == "True"
    stopped_at = job.check()
    job.change(state="running")
    status = job.wait_stable()
    job.wait_more(3)
    output = job.check()
    assert output.numbers > stopped_at.numbers
    assert status["restoredFrom"]
