"""The leading replica dies; the other acts, and jobs do not notice."""

from __future__ import annotations

import time

from e2e.conftest import MakeJob
from e2e.harness.operators import Operator
from e2e.harness.timeouts import FAILOVER_S
from e2e.harness.times import note


def test_two_replicas_failover(make_job: MakeJob, operator: Operator) -> None:
    """A change made right after the leader's death is acted on by the other replica, by one driver and no more."""
    job = make_job()
    job.create()
    job.wait_stable()
    (driver,) = job.pods("driver")
    leader = operator.leader()
    operator.kill(leader)
    killed = time.monotonic()
    job.change(savepointNonce=1)
    generation = job.generation()
    job.wait("the change was acted on", FAILOVER_S, lambda status: status.get("observedGeneration") == generation)
    failover_s = time.monotonic() - killed
    note("operator failover", failover_s, state_bytes=0, about="leader killed to the next change acted on")
    assert operator.leader() != leader
    job.wait("the savepoint", FAILOVER_S, lambda status: status.get("lastSavepoint"))
    job.wait_more(3)
    job.check()
    assert job.pods("driver")[0]["metadata"]["uid"] == driver["metadata"]["uid"]
    repaired = [event["message"] for event in job.kubectl.items("events") if event["reason"] == "ChildrenRepaired"]
    assert not repaired, "a replica that begins to lead finds the children as they are"
    operator.wait_ready()
