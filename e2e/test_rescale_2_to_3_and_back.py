"""``kubectl scale`` changes the number of slots in the running driver; state moves with its key groups."""

from __future__ import annotations

from e2e.harness.jobs import KIND, CountingJob, now_ms
from e2e.harness.kubectl import wait_for
from e2e.harness.timeouts import TRANSITION_S
from e2e.harness.times import note


def scale(job: CountingJob, slots: int) -> float:
    """Scale, wait until it runs so, and return the pause in output."""
    asked_ms = now_ms()
    job.kubectl.ok("scale", KIND, job.name, f"--replicas={slots}")
    job.wait(f"{slots} slots run", TRANSITION_S, lambda status: status.get("parallelism") == slots and not status.get("transition"))
    job.wait_more(5)
    wait_for(f"{slots} executors are left", TRANSITION_S, lambda: len(job.pods("executor")) == slots, job.said)
    return job.pause_s(asked_ms)


def test_rescale_2_to_3_and_back(full_job: CountingJob) -> None:
    """No row is lost or doubled, the driver stays, key groups are divided evenly."""
    job = full_job
    before = job.status()
    (driver,) = job.pods("driver")
    up_s = scale(job, 3)
    assert [(each["first"], each["last"]) for each in job.status()["keyGroups"]] == [(0, 3), (4, 7), (8, 11)]
    down_s = scale(job, 2)
    job.check()
    about = f"pause in output, 2 to 3 slots; {down_s:.1f} s back"
    note("rescale in place", max(up_s, down_s), state_bytes=before["lastCheckpoint"]["sizeBytes"], about=about)
    assert job.pods("driver")[0]["metadata"]["uid"] == driver["metadata"]["uid"]
    told = [each["message"] for each in job.kubectl.items("events") if each["reason"] == "Rescaled"]
    assert any(each.startswith("Rescaled from 2 to 3 slots: ") and "paused for" in each for each in told), told
