"""Deleting a job takes a savepoint where asked, and leaves nothing in the cluster and everything in the store."""

from __future__ import annotations

from e2e.conftest import MakeJob
from e2e.harness.jobs import JOB_LABEL
from e2e.harness.kubectl import wait_for
from e2e.harness.timeouts import GONE_S


def test_deletion_with_savepoint(make_job: MakeJob) -> None:
    """The savepoint is complete, and a job of another name goes on from it with the same counts."""
    job = make_job()
    job.create(savepointOnDeletion=True)
    status = job.wait_stable()
    job.wait_more(3)
    job.delete()
    (savepoint,) = [key for key in job.store.keys("savepoints/") if key.endswith("/_metadata") and status["jobId"] in key]
    assert job.store.keys(f"checkpoints/{status['jobId']}/")
    kinds = "configmaps,secrets,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets"
    wait_for("nothing is left", GONE_S, lambda: not job.kubectl.items(kinds, f"{JOB_LABEL}={job.name}"))
    old = job.check()
    heir = make_job("heir")
    heir.prefix = job.prefix  # its output goes on where the other's ended, and is judged together
    heir.create(initialSavepointPath=f"s3://state/{savepoint.removesuffix('/_metadata')}")
    heir.wait_stable()
    heir.wait_more(3)
    assert heir.check().numbers > old.numbers
