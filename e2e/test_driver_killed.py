"""The driver's pod dies without a word; a new one goes on from the store, since the old one's disk is gone."""

from __future__ import annotations

from e2e.harness.jobs import CountingJob, now_ms
from e2e.harness.times import note


def test_driver_killed(full_job: CountingJob) -> None:
    """No row is lost or doubled, it is another attempt of the same job."""
    job = full_job
    before = job.status()
    (driver,) = job.pods("driver")
    killed_ms = now_ms()
    job.kubectl.ok("delete", "pod", job.driver, "--grace-period=0", "--force", "--wait=false")
    job.wait_more(10)
    status = job.wait_stable()
    job.check()
    pause_s = job.pause_s(killed_ms)
    note("driver killed", pause_s, state_bytes=before["lastCheckpoint"]["sizeBytes"], about="pause in output")
    (now,) = job.pods("driver")
    assert now["metadata"]["uid"] != driver["metadata"]["uid"]
    assert status["attempt"] > before["attempt"]
    assert status["jobId"] == before["jobId"]
    assert status["restoredFrom"]
