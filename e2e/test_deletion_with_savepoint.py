"""Deleting a job takes a savepoint where asked, and leaves nothing in the cluster and everything in the store."""

from __future__ import annotations

from e2e.harness.jobs import JOB_LABEL, CountingJob
from e2e.harness.kubectl import wait_for
from e2e.harness.timeouts import GONE_S


def savepoints(job: CountingJob, job_id: str) -> set[str]:
    """Complete savepoints of a job in the store."""
    return {key for key in job.store.keys("savepoints/") if key.endswith("/_metadata") and job_id in key}


def test_deletion_with_savepoint(ending_job: CountingJob) -> None:
    """The savepoint is complete, and a job of another name goes on from it with the same counts."""
    job = ending_job
    job.change(savepointOnDeletion=True)
    status = job.wait_stable()
    before = savepoints(job, status["jobId"])
    job.delete()
    (savepoint,) = savepoints(job, status["jobId"]) - before
    assert job.store.keys(f"checkpoints/{status['jobId']}/")
    kinds = "configmaps,secrets,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets"
    wait_for("nothing is left", GONE_S, lambda: not job.kubectl.items(kinds, f"{JOB_LABEL}={job.name}"))
    old = job.check()
    heir = job.beside("heir")
    heir.prefix = job.prefix  # its output goes on where the other's ended, and is judged together
    heir.create(initialSavepointPath=f"s3://state/{savepoint.removesuffix('/_metadata')}")
    heir.wait_stable()
    heir.wait_more(3)
    assert heir.check().numbers > old.numbers
