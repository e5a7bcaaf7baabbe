"""The leading replica dies; the other acts, and jobs do not notice."""

from __future__ import annotations

import time

import pytest

from e2e.harness.jobs import CountingJob
from e2e.harness.operators import Operator
from e2e.harness.timeouts import FAILOVER_S
from e2e.harness.times import note


def repairs(job: CountingJob) -> dict[str, int]:
    """Events that tell of children that were changed or deleted, and how often."""
    found = [event for event in job.kubectl.items("events") if event["reason"] == "ChildrenRepaired"]
    return {event["metadata"]["name"]: event.get("count") or 1 for event in found}


# test_operator_killed_mid_upgrade.py kills all replicas, one after the other.
@pytest.mark.slow
def test_two_replicas_failover(job: CountingJob, operator: Operator) -> None:
    """A change made right after the leader's death is acted on by the other replica, by one driver and no more."""
    before = repairs(job)
    (driver,) = job.pods("driver")
    leader = operator.leader()
    operator.kill(leader)
    killed = time.monotonic()
    last = job.ask_for_savepoint()
    generation = job.generation()
    job.wait("the change was acted on", FAILOVER_S, lambda status: status.get("observedGeneration") == generation)
    failover_s = time.monotonic() - killed
    note("operator failover", failover_s, state_bytes=0, about="leader killed to the next change acted on")
    assert operator.leader() != leader
    job.wait_savepoint(last)
    job.wait_more(3)
    job.check()
    assert job.pods("driver")[0]["metadata"]["uid"] == driver["metadata"]["uid"]
    assert repairs(job) == before, "a replica that begins to lead finds the children as they are"
    operator.wait_ready()
