"""A namespace goes away with the jobs that run in it, and concerns no other."""

from __future__ import annotations

import time

import pytest

from e2e.conftest import MakeJob
from e2e.harness.jobs import CountingJob
from e2e.harness.kubectl import Kubectl, wait_for
from e2e.harness.operators import Operator
from e2e.harness.timeouts import GONE_S
from e2e.harness.times import note


def goes_away(job: CountingJob, about: str) -> None:
    """Delete the namespace of a job that runs."""
    job.create(savepointOnDeletion=True)
    job.wait_stable()
    job.wait_more(3)
    kubectl = job.kubectl
    began = time.monotonic()
    kubectl.ok("delete", "namespace", kubectl.namespace, "--wait=false")
    wait_for("the namespace is gone", GONE_S, lambda: kubectl.find("namespace", kubectl.namespace) is None)
    note("namespace deleted", time.monotonic() - began, state_bytes=0, about=about)
    job.check()


# operator/tests/handlers/test_namespaces_cluster.py deletes namespaces of jobs on the same API server, without their pods.
@pytest.mark.slow
def test_namespace_goes_away(make_job: MakeJob, kubectl: Kubectl, operator: Operator) -> None:
    """With `watchNamespaces`, where the operator's Role goes with the namespace. No replica is restarted."""
    pods = sorted(operator.pods())
    try:
        goes_away(make_job(), "with watchNamespaces")
        assert sorted(operator.pods()) == pods
        restarts = [
            status["restartCount"] for pod in operator.kubectl.items("pods", "app.kubernetes.io/component=operator")
            for status in pod["status"]["containerStatuses"]
        ]  # fmt: skip
        assert not any(restarts)
    finally:
        kubectl.create_namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})


@pytest.mark.slow
def test_namespace_goes_away_everywhere(make_job: MakeJob, kubectl: Kubectl, operator: Operator) -> None:
    """With an operator for the whole cluster."""
    watched = operator.value("watchNamespaces")
    operator.upgrade(watchNamespaces=[])
    try:
        goes_away(make_job(), "whole cluster")
    finally:
        kubectl.create_namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})
        operator.upgrade(watchNamespaces=watched)
