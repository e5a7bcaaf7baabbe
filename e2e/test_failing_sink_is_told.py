"""A job whose sink raises is never Ready nor STABLE: it says so with the error, is given up, and comes back when the sink does."""

from __future__ import annotations

import pytest

from e2e.conftest import MakeJob
from e2e.harness.kubectl import wait_for
from e2e.harness.timeouts import JOB_RUNS_S, RECOVERY_S, TRANSITION_S

ENDLESS = {"type": "fixed-delay", "fixedDelay": {"attempts": 1_000_000, "delay": "1s"}}
"""A restart strategy that never gives up, so that the driver says RUNNING all the time."""


@pytest.mark.slow
def test_failing_sink_is_told(make_job: MakeJob) -> None:
    """By conditions, status, an event and the driver's own status. A spec that is changed meanwhile is acted on."""
    job = make_job()
    closed = f"{job.prefix}-closed"
    job.store.put(closed)
    job.create(job={"args": job.arguments(f"--closed-while={closed}")}, restartStrategy=ENDLESS, upgradeTimeout="2m")
    wait_for("batches are said to fail", JOB_RUNS_S, lambda: job.condition("Degraded").get("reason") == "BatchesFail", job.said)
    assert "ConnectionError: the sink is closed" in job.condition("Degraded")["message"]
    wait_for("it fails again", RECOVERY_S, lambda: job.condition("Ready").get("reason") == "BatchesFail", job.said)
    assert job.condition("Ready")["status"] == "False"
    assert "the sink is closed" in job.status()["error"]["message"]
    told = [each for each in job.kubectl.items("events") if each["reason"] == "BatchesFail"]
    assert [each["type"] for each in told] == ["Warning"]
    status = job.wait_state("FAILED", TRANSITION_S)
    assert job.condition("Stalled")["reason"] == "BatchesFail"
    assert not {"STABLE"} & {each["state"] for each in status["lifecycleHistory"]}

    job.store.delete(closed)
    job.wait_stable()
    assert "error" not in job.status()
    assert job.condition("Ready")["status"] == "True"
    job.wait_more(5)
    job.check()
