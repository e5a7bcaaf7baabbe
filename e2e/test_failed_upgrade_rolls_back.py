"""An upgrade to code that fails goes back to the last stable spec, with its state."""

from __future__ import annotations

from e2e.harness.jobs import CountingJob
from e2e.harness.timeouts import TRANSITION_S


def test_failed_upgrade_rolls_back(job: CountingJob) -> None:
    """The old code runs again, nothing is lost or doubled, and the status says what happened and that a person must act."""
    (driver,) = job.pods("driver")
    stable, codes = driver["spec"]["containers"][0]["image"], job.check().codes
    image, code = job.other_code()
    job.change(image=image, job={"args": job.arguments("--fail-from=0")})
    status = job.wait_state("ROLLED_BACK", TRANSITION_S)
    job.wait_more(5)
    output = job.check()
    assert output.codes == codes
    assert "fail" in status["error"]["message"]
    job.wait_image(stable)
    assert job.condition("Degraded")["status"] == "True"
    states = [each["state"] for each in status["lifecycleHistory"]]
    assert "UPGRADING" in states
    assert "ROLLING_BACK" in states
    # A good spec is taken up again.
    job.change(image=image, job={"args": job.arguments()})
    job.wait_stable(TRANSITION_S)
    job.wait_more(3)
    assert job.check().codes == (*codes, code)
