"""A new image with new code takes over with all state."""

from __future__ import annotations

from e2e.conftest import MakeJob
from e2e.harness.jobs import HUNDRED_MB, now_ms
from e2e.harness.times import note


def test_upgrade_keeps_state(make_job: MakeJob) -> None:
    """Counts go on where the old code left off, no batch is run by both."""
    job = make_job(load=HUNDRED_MB)
    before = job.run_until_full(upgradeMode="savepoint")
    changed_ms = now_ms()
    job.change(image=job.images.job_next)
    status = job.wait_stable()
    job.wait_more(5)
    output = job.check()
    pause_s = job.pause_s(changed_ms)
    note("stateful upgrade", pause_s, state_bytes=before["lastCheckpoint"]["sizeBytes"], about="pause in output, with a savepoint")
    assert output.codes == (1, 2)
    assert status["jobId"] == before["jobId"]
    assert status["attempt"] > before["attempt"]
    assert status["restoredFrom"].startswith("s3://")
    assert status["lastSavepoint"]["id"] > before.get("lastSavepoint", {}).get("id", 0)
    for pod in job.pods():
        assert pod["spec"]["containers"][0]["image"] == job.images.job_next
