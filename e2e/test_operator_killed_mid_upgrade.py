"""All replicas of the operator die while it upgrades a job; on return it finishes what it began."""

from __future__ import annotations

from e2e.harness.jobs import CountingJob
from e2e.harness.operators import Operator
from e2e.harness.timeouts import TRANSITION_S


def test_operator_killed_mid_upgrade(job: CountingJob, operator: Operator) -> None:
    """Killed once in each step of the transition; state is kept, and there is one driver, of the new image."""
    codes = job.check().codes
    image, code = job.other_code()
    job.change(image=image)
    killed: list[str] = []

    def next_step(status: dict[str, object]) -> bool:
        """Kill all replicas whenever another step was begun; true when the upgrade is over."""
        transition = status.get("transition")
        step = str(transition["step"]) if isinstance(transition, dict) else ""
        if step and step not in killed and len(killed) < 3:
            killed.append(step)
            for pod in operator.pods():
                operator.kill(pod)
        return status.get("lifecycleState") == "STABLE" and not step and bool(killed)

    job.wait("the upgrade is over", TRANSITION_S, next_step)
    operator.wait_ready()
    job.wait_stable()
    job.wait_more(3)
    output = job.check()
    assert killed
    assert output.codes == (*codes, code)
    assert [pod["spec"]["containers"][0]["image"] for pod in job.pods("driver")] == [image]
