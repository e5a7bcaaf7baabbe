"""A bad object is refused when it is written; one that gets past the webhook is refused by the operator, and harms nobody."""

from __future__ import annotations

from e2e.conftest import MakeJob
from e2e.harness.jobs import KIND, CountingJob
from e2e.harness.kubectl import Kubectl, wait_for
from e2e.harness.operators import Operator
from e2e.harness.timeouts import STATUS_S


def refused(job: CountingJob, **changes: object) -> str:
    """What is said of the object when it is written, or in its status when it could be written."""
    document = job.manifest(**changes)
    done = job.kubectl.run("apply", "--validate=false", "-f", "-", given=document)
    if done.returncode:
        return done.stderr
    wait_for("Valid is False", STATUS_S, lambda: job.condition("Valid").get("status") == "False", job.said)
    message = str(job.condition("Valid")["message"])
    assert not job.pods()
    job.kubectl.ok("delete", KIND, job.name, f"--timeout={STATUS_S}s")
    return message


def test_bad_spec_is_refused(make_job: MakeJob) -> None:
    """Each sentence names the field and the remedy; no pod is made."""
    job = make_job("bad")
    assert "maxParallelism" in refused(job, parallelism=13)
    assert "memory" in refused(job, executor={"memory": "600Mi"})
    assert "cron" in refused(job, savepoints={"schedule": {"cron": "61 * * * *"}})
    assert "interval" in refused(job, checkpointing={"interval": "5 parsecs"})
    assert not job.pods()


def test_webhook_refuses_at_once(make_job: MakeJob, kubectl: Kubectl, operator: Operator) -> None:
    """What only the operator's own validation knows is refused before it is stored, by the webhook."""
    # No rule of the definition can say this, so an API server that evaluates rules asks the webhook as well.
    too_small = make_job("bad").manifest(executor={"memory": "600Mi"})

    def webhook_answers() -> bool:
        done = kubectl.run("apply", "--dry-run=server", "--validate=false", "-f", "-", given=too_small)
        return "denied the request" in done.stderr

    wait_for("the webhook answers", STATUS_S, webhook_answers)
    assert kubectl.find(KIND, "bad") is None
