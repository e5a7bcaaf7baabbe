"""Driver and all executors die at once with their disks: what is in the store is enough."""

from __future__ import annotations

import pytest

from e2e.harness.jobs import JOB_LABEL, CountingJob, now_ms
from e2e.harness.times import note


@pytest.mark.slow
def test_node_disk_lost(full_job: CountingJob) -> None:
    """No row is lost or doubled; every pod is a new one."""
    job = full_job
    before = job.status()
    old = {pod["metadata"]["uid"] for pod in job.pods()}
    killed_ms = now_ms()
    job.kubectl.ok("delete", "pods", f"--selector={JOB_LABEL}={job.name}", "--grace-period=0", "--force", "--wait=false")
    job.wait_more(10)
    job.wait_stable()
    job.check()
    note("node lost", job.pause_s(killed_ms), state_bytes=before["lastCheckpoint"]["sizeBytes"], about="pause in output, all pods killed")
    assert old.isdisjoint({pod["metadata"]["uid"] for pod in job.pods()})
