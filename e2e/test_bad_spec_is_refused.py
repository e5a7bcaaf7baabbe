"""A bad object is refused when it is written; one that gets past the webhook is refused by the operator, and harms nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.conftest import MakeJob
from e2e.harness.jobs import KIND, CountingJob
from e2e.harness.kubectl import Kubectl, wait_for
from e2e.harness.operators import Operator
from e2e.harness.timeouts import STATUS_S

DENIED = "denied the request"
TOO_SMALL = {"executor": {"memory": "600Mi"}}
"""No rule of the schema can say this: only the webhook and the operator can."""


def refused(job: CountingJob, **changes: object) -> str:
    """What the API server says of the object when it is written."""
    done = job.kubectl.run("apply", "--validate=false", "-f", "-", given=job.manifest(**changes))
    assert done.returncode, f"taken: {changes}"
    assert job.kubectl.find(KIND, job.name) is None
    return done.stderr


@contextmanager
def without_webhook(kubectl: Kubectl) -> Iterator[None]:
    """Let the API server ask no webhook meanwhile."""
    kind = "validatingwebhookconfigurations"
    found = next(each for each in kubectl.get(kind)["items"] if each["webhooks"][0]["name"] == "validate.statefulspark.io")

    def patch(rules: object) -> None:
        change = [{"op": "replace", "path": "/webhooks/0/rules", "value": rules}]
        kubectl.ok("patch", kind, found["metadata"]["name"], "--type=json", "-p", json.dumps(change))

    patch([])
    try:
        yield
    finally:
        patch(found["webhooks"][0]["rules"])


def test_bad_spec_is_refused(make_job: MakeJob, kubectl: Kubectl, operator: Operator) -> None:
    """Each sentence names the field and the remedy; nothing is stored, and no pod is made."""
    job = make_job("bad")

    def webhook_answers() -> bool:
        return DENIED in kubectl.run("apply", "--dry-run=server", "--validate=false", "-f", "-", given=job.manifest(**TOO_SMALL)).stderr

    wait_for("the webhook answers", STATUS_S, webhook_answers)
    told = refused(job, **TOO_SMALL)
    assert DENIED in told
    assert "memory" in told
    told = refused(job, savepoints={"schedule": {"cron": "61 * * * *"}})
    assert DENIED in told
    assert "cron" in told
    assert "maxParallelism" in refused(job, parallelism=13)
    assert "interval" in refused(job, checkpointing={"interval": "5 parsecs"})
    assert not job.pods()


def test_the_operator_refuses_what_gets_past_the_webhook(make_job: MakeJob, kubectl: Kubectl, operator: Operator) -> None:
    """As where the webhook is not installed, or cannot be reached and may be passed."""
    job = make_job("bad")

    def taken() -> bool:
        return kubectl.run("apply", "--validate=false", "-f", "-", given=job.manifest(**TOO_SMALL)).returncode == 0

    with without_webhook(kubectl):
        wait_for("the API server asks no webhook", STATUS_S, taken)
        wait_for("Valid is False", STATUS_S, lambda: job.condition("Valid").get("status") == "False", job.said)
        assert "memory" in str(job.condition("Valid")["message"])
        assert not job.pods()
        job.kubectl.ok("delete", KIND, job.name, f"--timeout={STATUS_S}s")
