"""A HorizontalPodAutoscaler finds the job's scale subresource and moves its parallelism."""

from __future__ import annotations

import pytest

from e2e.conftest import MakeJob
from e2e.harness.jobs import KIND
from e2e.harness.timeouts import TRANSITION_S


@pytest.mark.slow
def test_hpa_scales(make_job: MakeJob) -> None:
    """Below its minimum an autoscaler raises the number without metrics, which a test cluster does not have."""
    job = make_job()
    job.create()
    job.wait_stable()
    target = {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "name": job.name}
    job.kubectl.apply(
        {
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": job.name},
            "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4, "targetCPUUtilizationPercentage": 80},
        }
    )
    job.wait("3 slots run", TRANSITION_S, lambda status: status.get("parallelism") == 3 and not status.get("transition"))
    assert job.kubectl.get(KIND, job.name)["spec"]["parallelism"] == 3
    scaler = job.kubectl.get("hpa", job.name)
    assert scaler["status"]["currentReplicas"] in {2, 3}
    job.wait_more(3)
    job.check()
