"""A new image with new code takes over with all state."""

from __future__ import annotations

import pytest

from e2e.harness.jobs import CountingJob, now_ms
from e2e.harness.times import note


# test_operator_killed_mid_upgrade.py upgrades too, and test_failed_upgrade_rolls_back.py twice.
@pytest.mark.slow
def test_upgrade_keeps_state(full_job: CountingJob) -> None:
    """Counts go on where the old code left off, no batch is run by both."""
    job = full_job
    before, codes = job.status(), job.check().codes
    image, code = job.other_code()
    changed_ms = now_ms()
    job.change(image=image, upgradeMode="savepoint")
    status = job.wait_stable()
    job.wait_more(5)
    output = job.check()
    pause_s = job.pause_s(changed_ms)
    note("stateful upgrade", pause_s, state_bytes=before["lastCheckpoint"]["sizeBytes"], about="pause in output, with a savepoint")
    assert output.codes == (*codes, code)
    assert status["jobId"] == before["jobId"]
    assert status["attempt"] > before["attempt"]
    assert status["restoredFrom"].startswith("s3://")
    assert status["lastSavepoint"]["id"] > before.get("lastSavepoint", {}).get("id", 0)
    job.wait_image(image)
