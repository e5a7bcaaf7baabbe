"""A job's certificate is replaced while it runs, by an operator that can read no Secret; nothing is started again and no row is lost."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

from e2e.harness.jobs import JOB_LABEL, CountingJob
from e2e.harness.kubectl import wait_for
from e2e.harness.operators import DEPLOYMENT, Operator
from e2e.harness.timeouts import RENEWED_S

SHOWN = "import ssl; print(ssl.get_server_certificate(('127.0.0.1', 8480)))"
"""The certificate of the API, asked for in its own pod."""


def running(job: CountingJob) -> set[tuple[str, int]]:
    """Driver and executors, with their restarts; pods that open storage come and go."""
    pods = [*job.pods("driver"), *job.pods("executor")]
    return {(pod["metadata"]["uid"], sum(each["restartCount"] for each in pod["status"]["containerStatuses"])) for pod in pods}


def test_certificate_renewed(job: CountingJob, operator: Operator) -> None:
    """What is said of its end is changed, so that it is near; then a child goes, whereupon the operator looks at all of them."""
    kubectl, name = job.kubectl, f"{job.name}-tls"
    account = f"--as=system:serviceaccount:{operator.kubectl.namespace}:{DEPLOYMENT}"
    for verb in ("get", "list", "watch", "patch", "update", "delete"):
        assert kubectl.run("auth", "can-i", verb, "secrets", account).stdout.strip() == "no", verb
    before = kubectl.get("secret", name)
    pods = running(job)
    soon = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    kubectl.ok("patch", "configmap", name, "--type=merge", "--patch", json.dumps({"data": {"notAfter": soon}}))
    kubectl.ok("delete", "service", job.driver)

    def replaced() -> str | None:
        found = kubectl.find("secret", name)
        other = found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]
        return base64.b64decode(found["data"]["tls.crt"]).decode().strip() if found is not None and other else None

    wanted = wait_for("another Secret", RENEWED_S, replaced, job.said)
    # The kubelet takes new files to a pod when the pod changes, or else once a minute or so.
    kubectl.ok("annotate", "pods", f"--selector={JOB_LABEL}={job.name}", "e2e/certificate=renewed")

    def shown() -> bool:
        return kubectl.run("exec", job.driver, "--", "python", "-c", SHOWN).stdout.strip() == wanted

    wait_for("the driver shows the new certificate", RENEWED_S, shown, job.said)
    job.wait_more(5)
    job.wait_savepoint(job.ask_for_savepoint())  # the operator calls the driver, and the driver all slots
    job.wait_stored_checkpoints()
    job.check()
    assert running(job) == pods
