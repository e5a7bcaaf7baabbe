"""A manifest becomes a running job: chart, operator, driver, executors, keyed state, right output."""

from __future__ import annotations

from e2e.conftest import MakeJob
from e2e.harness.jobs import now_ms
from e2e.harness.timeouts import JOB_RUNS_S
from e2e.harness.times import note


def test_deploys_and_counts(make_job: MakeJob) -> None:
    """Every number goes out once with the right count; the status says what runs."""
    job = make_job()
    created_ms = now_ms()
    job.create()
    job.wait_batch(0)
    note("deploy", (min(each.at_ms for each in job.written()) - created_ms) / 1000, state_bytes=0, about="object made to first output")
    status = job.wait_stable(JOB_RUNS_S)
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
