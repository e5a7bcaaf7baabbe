"""Savepoints are taken on schedule, old ones are disposed of, those that a person asked for stay."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.conftest import MakeJob
from e2e.harness.jobs import SNAPSHOTS, CountingJob
from e2e.harness.kubectl import wait_for
from e2e.harness.timeouts import CHECKPOINT_S

PERIOD_S = 10
KEPT = 2


def completed(job: CountingJob) -> dict[str, dict[str, Any]]:
    """Snapshots of the schedule that are complete and not being deleted, by name."""
    found = job.kubectl.items(SNAPSHOTS, f"statefulspark.io/job={job.name},statefulspark.io/trigger-type=scheduled")
    kept = [each for each in found if "deletionTimestamp" not in each["metadata"]]
    return {each["metadata"]["name"]: each["status"] for each in kept if each.get("status", {}).get("state") == "COMPLETED"}


def files(job: CountingJob, status: dict[str, Any]) -> list[str]:
    """What is in the store of a savepoint."""
    return job.store.keys(str(status["path"]).removeprefix("s3://state/").rstrip("/") + "/")


@pytest.mark.slow
def test_periodic_savepoints_and_retention(make_job: MakeJob) -> None:
    """Two are kept, with their files; the files of older ones are gone; the manual one and its files stay."""
    job = make_job()
    job.create(savepoints={"schedule": {"interval": f"{PERIOD_S}s"}, "history": {"count": KEPT}})
    job.wait_stable()
    manual = job.wait_savepoint(job.ask_for_savepoint())
    first = wait_for("a savepoint of the schedule", CHECKPOINT_S, lambda: completed(job), job.said)
    old, old_status = min(first.items())
    wait_for("the first is pruned", CHECKPOINT_S, lambda: old not in completed(job) and not files(job, old_status), job.said)
    now = wait_for("two are kept", CHECKPOINT_S, lambda: completed(job) if len(completed(job)) == KEPT else None, job.said)
    for status in now.values():
        assert any(key.endswith("/_metadata") for key in files(job, status)) or completed(job) != now
    assert any(key.endswith("/_metadata") for key in files(job, manual))
    job.check()
