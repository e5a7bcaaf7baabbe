"""An executor dies without a word; its slots go on elsewhere with their state, the others keep theirs."""

from __future__ import annotations

from e2e.harness.jobs import CountingJob, now_ms
from e2e.harness.times import note


def test_executor_killed(full_job: CountingJob) -> None:
    """No row is lost or doubled, the driver stays."""
    job = full_job
    before = job.status()
    (driver,) = job.pods("driver")
    victim = job.pods("executor")[0]["metadata"]["name"]
    killed_ms = now_ms()
    job.kubectl.ok("delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")
    job.wait_more(10)
    output = job.check()
    pause_s = job.pause_s(killed_ms)
    note("executor killed", pause_s, state_bytes=before["lastCheckpoint"]["sizeBytes"], about="pause in output")
    assert output.batches > before["batch"] + 10
    assert job.pods("driver")[0]["metadata"]["uid"] == driver["metadata"]["uid"]
    assert victim not in {each["metadata"]["name"] for each in job.pods("executor")}
    assert job.status()["attempt"] == before["attempt"]
