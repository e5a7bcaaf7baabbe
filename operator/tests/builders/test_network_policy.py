"""The network policy of a job, judged by a few lines that know what Kubernetes makes of one."""

from __future__ import annotations

from typing import Any

import pytest

from statefulspark.config.kubernetes.pods import API_PORT
from statefulspark_operator.api.names import COMPONENT_DRIVER, COMPONENT_EXECUTOR
from statefulspark_operator.builders.children import network_policy
from statefulspark_operator.builders.identities import JobIdentity

JOB = JobIdentity(name="counts", namespace="shop", uid="u-1", generation=3)
OPERATOR = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "system"}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "statefulspark", "app.kubernetes.io/instance": "demo"}},
}
OPERATOR_POD = {"app.kubernetes.io/name": "statefulspark", "app.kubernetes.io/instance": "demo", "pod-template-hash": "x"}


def matches(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    return selector is None or selector["matchLabels"].items() <= labels.items()


def admitted(policy: dict[str, Any], *, namespace: str, labels: dict[str, str], port: int) -> bool:
    """Whether a pod of ``namespace`` with ``labels`` may connect to a selected pod's port: "NetworkPolicy", networking.k8s.io/v1."""
    for rule in policy["spec"]["ingress"]:
        if "ports" in rule and port not in {each["port"] for each in rule["ports"]}:
            continue
        for peer in rule["from"]:
            same = namespace == policy["metadata"]["namespace"]
            there = matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace}) if "namespaceSelector" in peer else same
            if there and matches(peer.get("podSelector"), labels):
                return True
    return False


@pytest.mark.parametrize("component", [COMPONENT_DRIVER, COMPONENT_EXECUTOR])
@pytest.mark.parametrize("port", [API_PORT, 7078, 7079, 40123])
def test_pods_of_a_job_reach_each_other_at_every_port(component: str, port: int) -> None:
    policy = network_policy(JOB, api_from=[OPERATOR])
    assert matches(policy["spec"]["podSelector"], JOB.labels(component)), "the policy is about this pod"
    assert admitted(policy, namespace="shop", labels=JOB.labels(component), port=port)


@pytest.mark.parametrize(
    ("namespace", "labels", "port", "allowed"),
    [
        ("system", OPERATOR_POD, API_PORT, True),
        ("system", OPERATOR_POD, 7078, False),
        ("shop", OPERATOR_POD, API_PORT, False),
        ("system", {"app.kubernetes.io/name": "other"}, API_PORT, False),
        ("elsewhere", JOB.labels(COMPONENT_EXECUTOR), 7078, False),
        ("shop", JobIdentity(name="other", namespace="shop", uid="u-2", generation=1).labels(COMPONENT_EXECUTOR), 40123, False),
        ("shop", {}, API_PORT, False),
    ],
)
def test_others_reach_the_api_if_they_are_named_and_nothing_else(namespace: str, labels: dict[str, str], port: int, allowed: bool) -> None:
    assert admitted(network_policy(JOB, api_from=[OPERATOR]), namespace=namespace, labels=labels, port=port) is allowed


def test_without_peers_the_api_is_open_to_nobody() -> None:
    """An empty list would mean everybody to Kubernetes."""
    policy = network_policy(JOB, api_from=[])
    assert all(rule["from"] for rule in policy["spec"]["ingress"])
    assert not admitted(policy, namespace="system", labels=OPERATOR_POD, port=API_PORT)


def test_it_goes_with_the_job() -> None:
    (owner,) = network_policy(JOB, api_from=[])["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("u-1", True)
