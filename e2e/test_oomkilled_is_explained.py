"""The computed sizes hold under load; a slot that takes too much memory is ended, and an event says by how much and what to change."""

from __future__ import annotations

from typing import Any

from e2e.harness.jobs import CountingJob
from e2e.harness.kubectl import wait_for
from e2e.harness.timeouts import RECOVERY_S

LOADED_BATCHES = 30


def explanations(job: CountingJob) -> list[dict[str, Any]]:
    """Events that tell of lack of memory."""
    return [each for each in job.kubectl.items("events") if each["reason"] == "OOMKilled"]


def test_oomkilled_is_explained(ending_full_job: CountingJob) -> None:
    """Nothing is ended while the job keeps to its budget; afterwards the event names the limit and the field, and no row is lost."""
    job = ending_full_job
    job.wait_batch(LOADED_BATCHES - 1)
    assert explanations(job) == []
    job.change(state="suspended")
    job.wait_state("SUSPENDED")
    last = job.last_batch()
    job.change(state="running", job={"args": job.arguments(f"--hoard-at={job.load.rows * (last + 5)}")})
    job.wait_batch(last + 1)
    (event,) = wait_for("an event explains", RECOVERY_S, lambda: explanations(job)[:1], job.said)
    assert event["type"] == "Warning"
    assert event["involvedObject"]["name"] == job.name
    assert "spec.executor" in event["message"]
    assert any(character.isdigit() for character in event["message"])
    job.wait_batch(last + 10)
    job.check()
