"""State leaves the cluster: checkpoints are complete in S3, old ones go, nothing else does."""

from __future__ import annotations

from e2e.harness.jobs import HUNDRED_MB, CountingJob
from e2e.harness.store import BUCKET
from e2e.harness.timeouts import LISTED_S


def test_checkpoints_reach_s3(full_job: CountingJob) -> None:
    """The newest checkpoint of the status is in the store, with 100 MB of state, and two are kept as the manifest says."""
    job = full_job
    folder = f"checkpoints/{job.status()['jobId']}/"
    job.wait_checkpoint()
    newest = job.wait_checkpoint()["lastCheckpoint"]
    assert newest["path"].startswith(f"s3://{BUCKET}/{folder}")
    own = newest["path"].removeprefix(f"s3://{BUCKET}/").rstrip("/") + "/"
    assert f"{own}_metadata" in job.store.keys(own)
    assert newest["sizeBytes"] >= HUNDRED_MB.keys * HUNDRED_MB.pad_bytes
    complete = [key for key in job.store.keys(folder) if key.endswith("/_metadata")]
    assert 1 <= len(complete) <= 3  # two are kept; a third may have come meanwhile
    assert job.store.size_bytes(folder) >= HUNDRED_MB.keys * HUNDRED_MB.pad_bytes
    # Each that is kept can be seen and forked from: its object is made within the half minute of progress, and goes with its files.
    job.wait("objects of checkpoints", LISTED_S, lambda _: job.snapshots() and all("status" in each for each in job.snapshots()))
    for each in job.snapshots():
        assert each["status"]["path"].startswith(f"s3://{BUCKET}/{folder}chk-")
        assert each["status"]["sizeBytes"] > 0
        assert each["metadata"]["labels"]["statefulspark.io/snapshot-type"] == "checkpoint"
        assert each["metadata"]["labels"]["statefulspark.io/trigger-type"] == "job"
    assert len(job.snapshots()) <= 2
    seen = job.snapshots()[0]["metadata"]["name"]
    job.wait("an object goes with its files", LISTED_S, lambda _: seen not in {each["metadata"]["name"] for each in job.snapshots()})
    job.check()
