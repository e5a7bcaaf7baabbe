"""A StateSnapshot is taken by creating it, here in the canonical format, and another job begins from it; one that exists is made known, and disposed of with its object."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.harness.jobs import SNAPSHOTS, CountingJob
from e2e.harness.kubectl import wait_for
from e2e.harness.oracle import check
from e2e.harness.timeouts import CHECKPOINT_S


def create(job: CountingJob, name: str, **savepoint: Any) -> dict[str, Any]:
    """Create a StateSnapshot of a savepoint, and return its status once it is complete."""
    job.kubectl.apply(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StateSnapshot",
            "metadata": {"name": name, "namespace": job.kubectl.namespace},
            "spec": {"jobReference": {"name": job.name}, "savepoint": savepoint},
        }
    )

    def completed() -> dict[str, Any] | None:
        status: dict[str, Any] = (job.kubectl.find(SNAPSHOTS, name) or {}).get("status", {})
        return status if status.get("state") == "COMPLETED" else None

    found: dict[str, Any] = wait_for(f"snapshot {name} is complete", CHECKPOINT_S, completed, lambda: job.kubectl.find(SNAPSHOTS, name))
    return found


@pytest.mark.slow
def test_fork_from_snapshot(job: CountingJob) -> None:
    """What the first gave out up to the snapshot and what the fork gave out after it are right together; the first goes on."""
    snapshot = create(job, "branch", format="canonical")
    folder = str(snapshot["path"]).removeprefix("s3://state/") + "/"
    assert any(key.endswith(".parquet") for key in job.store.keys(folder))
    fork = job.beside("fork")
    fork.create(initialSnapshot={"name": "branch"})
    fork.wait_stable()
    fork.wait_more(3)
    last = int(str(snapshot["batch"]))
    before = [each for each in job.written() if each.batch <= last]
    after = fork.written()
    assert min(each.batch for each in after) == last + 1
    output = check([*before, *after], keys=job.load.keys, pad_bytes=job.load.pad_bytes)
    assert output.batches > last + 3
    job.wait_more(3)
    job.check()
    # A pod of the job opens the store, for the operator never does: it describes what is there, and removes it with the object.
    again = create(job, "known", path=str(snapshot["path"]), alreadyExists=True, disposeOnDelete=True)
    assert (again["path"], again["batch"], again["maxParallelism"]) == (snapshot["path"], snapshot["batch"], 12)
    assert job.store.keys(folder)
    job.kubectl.ok("delete", SNAPSHOTS, "known", "--wait=false")
    wait_for("the savepoint is gone", CHECKPOINT_S, lambda: job.kubectl.find(SNAPSHOTS, "known") is None and not job.store.keys(folder))
