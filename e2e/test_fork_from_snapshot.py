"""A StateSnapshot is taken by creating it, and another job begins from it."""

from __future__ import annotations

from e2e.conftest import MakeJob
from e2e.harness.jobs import SNAPSHOTS
from e2e.harness.kubectl import wait_for
from e2e.harness.oracle import check
from e2e.harness.timeouts import CHECKPOINT_S


def test_fork_from_snapshot(make_job: MakeJob) -> None:
    """What the first gave out up to the snapshot and what the fork gave out after it are right together; the first goes on."""
    job = make_job()
    job.create()
    job.wait_stable()
    job.wait_more(3)
    job.kubectl.apply(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StateSnapshot",
            "metadata": {"name": "branch", "namespace": job.kubectl.namespace},
            "spec": {"jobReference": {"name": job.name}, "savepoint": {}},
        }
    )

    def taken() -> dict[str, object] | None:
        status = (job.kubectl.find(SNAPSHOTS, "branch") or {}).get("status", {})
        return status if status.get("state") == "COMPLETED" else None

    snapshot = wait_for("the snapshot is taken", CHECKPOINT_S, taken, lambda: job.kubectl.find(SNAPSHOTS, "branch"))
    fork = make_job("fork")
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
