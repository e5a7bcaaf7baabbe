"""An upgrade of the chart replaces the operator and touches no job."""

from __future__ import annotations

import pytest

from e2e.conftest import MakeJob
from e2e.harness.jobs import now_ms
from e2e.harness.kubectl import wait_for
from e2e.harness.operators import Operator
from e2e.harness.timeouts import GONE_S

PAUSE_S = 10.0
"""No batch may wait for the operator; what is left is the noise of a busy node."""


@pytest.mark.slow
def test_helm_upgrade_keeps_jobs(make_job: MakeJob, operator: Operator) -> None:
    """Other values, other pods of the operator, the same pods of the job, whose output does not pause; then changes are acted on again."""
    job = make_job()
    job.create()
    job.wait_stable()
    pods = {pod["metadata"]["uid"] for pod in job.pods()}
    before, upgraded_ms = set(operator.pods()), now_ms()
    operator.upgrade(log={"level": "debug"}, podLabels={"e2e": "upgraded"})
    wait_for("the old pods of the operator are gone", GONE_S, lambda: before.isdisjoint(operator.pods()), lambda: str(operator.pods()))
    job.wait_more(5)
    job.check()
    assert job.pause_s(upgraded_ms) < PAUSE_S
    assert {pod["metadata"]["uid"] for pod in job.pods()} == pods
    job.change(state="suspended")
    job.wait_state("SUSPENDED")
