"""An upgrade whose errors are tried again for ever never completes a batch: it runs, proves nothing, and goes back."""

from __future__ import annotations

import pytest

from e2e.conftest import MakeJob
from e2e.harness.timeouts import TRANSITION_S


@pytest.mark.slow
def test_unproved_upgrade_rolls_back(make_job: MakeJob) -> None:
    """Its driver says RUNNING all the time, since the restart strategy of the manifest never gives up."""
    job = make_job()
    job.create()
    job.wait_stable()
    assert " ERROR " not in job.kubectl.ok("logs", job.driver), "a start without trouble logs none"
    job.change(
        job={"args": job.arguments("--fail-from=0")},
        restartStrategy={"type": "fixed-delay", "fixedDelay": {"attempts": 1_000_000, "delay": "1s"}},
        upgradeTimeout="2m",
    )
    status = job.wait_state("ROLLED_BACK", 2 * TRANSITION_S)
    assert status["error"]["reason"] in {"NotStable", "BatchesFail"}, "whichever time is over first"
    assert "told to fail" in status["error"]["message"]
    assert "RUNNING" in [each["state"] for each in status["lifecycleHistory"][:3]]
    assert job.condition("Degraded")["reason"] == "RolledBack"
    job.wait_more(5)
    job.check()
