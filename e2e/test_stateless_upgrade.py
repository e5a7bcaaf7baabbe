"""``upgradeMode: stateless`` begins anew, and leaves the old state where it is."""

from __future__ import annotations

import pytest

from e2e.conftest import MakeJob
from e2e.harness.jobs import written
from e2e.harness.oracle import check


@pytest.mark.slow
def test_stateless_upgrade(make_job: MakeJob) -> None:
    """The new code counts from 0 in a folder of its own; the old checkpoints stay."""
    job = make_job()
    job.create(upgradeMode="stateless")
    before = job.wait_stable()
    job.wait_more(3)
    anew = make_job()
    anew.prefix = f"{job.prefix}-anew"
    job.change(image=job.images.job_next, job={"args": anew.arguments()})
    status = job.wait_stable()
    anew.wait_more(3)
    assert status["jobId"] != before["jobId"]
    assert job.store.keys(f"checkpoints/{before['jobId']}/")
    old = check([written(key, job.store.json(key)) for key in job.store.keys(f"{job.prefix}/")], keys=job.load.keys, pad_bytes=64)
    assert old.codes == (1,)
    output = anew.check()
    assert output.codes == (2,)
    assert output.numbers > 0
