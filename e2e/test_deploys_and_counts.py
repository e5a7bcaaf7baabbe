"""A manifest becomes a running job: chart, operator, driver, executors, keyed state, right output."""

from __future__ import annotations

from datetime import datetime

from e2e.harness.jobs import KIND, CountingJob
from e2e.harness.times import note


def test_deploys_and_counts(new_job: CountingJob) -> None:
    """Every number goes out once with the right count; the status says what runs."""
    job = new_job
    created = datetime.fromisoformat(job.kubectl.get(KIND, job.name)["metadata"]["creationTimestamp"])
    deploy_s = min(each.at_ms for each in job.written()) / 1000 - created.timestamp()
    note("deploy", deploy_s, state_bytes=0, about="object made to first output, JVMs with the first compiler alone")
    status = job.wait_stable()
    job.wait_more(5)
    output = job.check()
    assert output.batches >= 6
    assert output.numbers == output.batches * job.load.rows
    assert output.codes == (1,)
    assert status["parallelism"] == 2
    assert status["maxParallelism"] == 12
    assert [(each["first"], each["last"]) for each in status["keyGroups"]] == [(0, 5), (6, 11)]
    conditions = {name: job.condition(name).get("status") for name in ("Valid", "Ready", "Running", "Degraded", "Stalled")}
    assert conditions == {"Valid": "True", "Ready": "True", "Running": "True", "Degraded": "False", "Stalled": "False"}
    assert len(job.pods("executor")) == 2
    assert len(job.pods("driver")) == 1
    assert " ERROR " not in job.kubectl.ok("logs", job.driver), "a start without trouble logs none"
