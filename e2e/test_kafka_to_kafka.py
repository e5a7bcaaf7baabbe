"""The Kafka example runs as its manifest says; what is killed and rescaled on the way, a consumer of committed messages sees each row once and in order."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from e2e.conftest import MakeJob
from e2e.harness.jobs import KIND, CountingJob
from e2e.harness.kafka import Kafka
from e2e.harness.kubectl import wait_for
from e2e.harness.providers import ROOT
from e2e.harness.timeouts import RECOVERY_S, TRANSITION_S


@pytest.mark.slow
def test_kafka_to_kafka(make_job: MakeJob, kafka: Kafka) -> None:
    """An executor and the broker are killed, and the job goes from 2 slots to 3, while payments come."""
    kafka.create("payments", 2)
    kafka.create("balances", 3)
    job = make_job("payments")
    with kafka.payments("payments", seed=7) as payments:
        job.create(image=kafka.image, job=shown()["job"] | {"args": [kafka.address, "payments", "balances"]})
        job.wait_stable()
        wait_more(job)
        victim = job.pods("executor")[0]["metadata"]["name"]
        job.kubectl.ok("delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")
        wait_more(job)
        job.kubectl.ok("scale", KIND, job.name, "--replicas=3")
        job.wait("3 slots run", TRANSITION_S, lambda status: status.get("parallelism") == 3 and not status.get("transition"))
        wait_more(job)
        kafka.kill()
        wait_more(job)
    wait_for(
        "all payments are in balances", RECOVERY_S, lambda: sum(map(len, kafka.balances("balances").values())) >= payments.sent, job.said
    )
    assert kafka.balances("balances") == payments.expected
    assert victim not in {each["metadata"]["name"] for each in job.pods("executor")}


def wait_more(job: CountingJob, batches: int = 5) -> None:
    """Wait until so many more batches are done."""
    wanted = job.status()["batch"] + batches
    job.wait(f"batch {wanted} is done", RECOVERY_S, lambda status: status.get("batch", 0) >= wanted)


def shown() -> dict[str, Any]:
    """The spec of the example's manifest for Kubernetes."""
    *_, job = yaml.safe_load_all((ROOT / "examples" / "14-kafka" / "kubernetes.yaml").read_text())
    return dict(job["spec"])
