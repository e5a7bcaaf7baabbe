"""The job's NetworkPolicy lets its own pods, the operator and named scrapers through, and nobody else: pods try to connect to every open port."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from e2e.conftest import PREFIX
from e2e.harness.images import Images
from e2e.harness.jobs import JOB_LABEL, CountingJob
from e2e.harness.kubectl import Kubectl, wait_for
from e2e.harness.network import enforces_policies, idle_pod, listening, reached
from e2e.harness.operators import Operator
from e2e.harness.timeouts import RECOVERY_S

API = 8480
SCRAPE = """
import ssl, sys, urllib.request
authority, token, address = sys.argv[1:]
class Named(ssl.SSLContext):
    def wrap_socket(self, *given, **more):
        return super().wrap_socket(*given, **(more | {"server_hostname": "job.statefulspark.internal"}))
context = Named(ssl.PROTOCOL_TLS_CLIENT)
context.load_verify_locations(cadata=authority)
asked = urllib.request.Request(f"https://{address}:8480/metrics", headers={"Authorization": f"Bearer {token}"})
print(urllib.request.urlopen(asked, context=context, timeout=10).read().decode())
"""


@pytest.fixture
def elsewhere(images: Images, operator: Operator) -> Iterator[Kubectl]:
    """A namespace that the operator does not watch, on a cluster that enforces policies."""
    namespace = Kubectl(f"{PREFIX}-policies")
    if not enforces_policies(namespace, images):
        pytest.skip("the cluster's network plugin does not enforce NetworkPolicies")
    namespace.create_namespace()
    yield namespace
    namespace.delete_namespace(wait=False)


def test_network_policy(job: CountingJob, operator: Operator, images: Images, elsewhere: Kubectl) -> None:
    """Each pod's open ports, knocked at by the job's pods, the operator, neighbors with misleading labels, and Prometheus before and after it is named."""
    pods = [*job.pods("driver"), *job.pods("executor")]
    names = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods}
    ports = {name: listening(job.kubectl, name) for name in names}
    assert all(ports.values())
    assert API in ports[job.driver]
    own = {JOB_LABEL: job.name}
    with (
        idle_pod(job.kubectl, images.store, "neighbor", {JOB_LABEL: "another"}),
        idle_pod(elsewhere, images.store, "stranger", own),
        idle_pod(operator.kubectl, images.store, "beside-operator", own),
        idle_pod(elsewhere, images.store, "prometheus", {"app": "prometheus"}),
    ):
        for name, address in names.items():
            api = {API} if name == job.driver else set()
            for peer in names.keys() - {name}:
                assert reached(job.kubectl, peer, address, ports[name]) == set(ports[name]), f"{peer} to {name}"
            for pod in operator.pods():
                assert reached(operator.kubectl, pod, address, ports[name]) == api, f"the operator's {pod} to {name}"
            for namespace, pod in (
                (job.kubectl, "neighbor"),
                (elsewhere, "stranger"),
                (elsewhere, "prometheus"),
                (operator.kubectl, "beside-operator"),
            ):
                assert reached(namespace, pod, address, ports[name]) == set(), f"{pod} of {namespace.namespace} to {name}"
        assert_scraped_once_named(job, operator, elsewhere, names, ports)
    job.wait_savepoint(job.ask_for_savepoint())  # the operator calls the driver, and the driver all slots
    job.wait_more(3)
    job.check()


def assert_scraped_once_named(
    job: CountingJob, operator: Operator, elsewhere: Kubectl, names: dict[str, str], ports: dict[str, list[int]]
) -> None:
    """Names Prometheus in the chart's values: it gets the metrics and reaches nothing else, and its neighbor still reaches nothing."""
    prometheus = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": elsewhere.namespace}},
        "podSelector": {"matchLabels": {"app": "prometheus"}},
    }
    operator.upgrade(jobNetworkPolicy={"enabled": True, "apiFrom": [prometheus]})
    try:
        address = names[job.driver]
        wait_for("Prometheus reaches the API", RECOVERY_S, lambda: API in reached(elsewhere, "prometheus", address, [API]), job.said)
        for name, address in names.items():
            assert reached(elsewhere, "prometheus", address, ports[name]) == ({API} if name == job.driver else set()), name
            assert reached(elsewhere, "stranger", address, ports[name]) == set(), name
        secrets = (("secret", f"{job.name}-tls", "ca.crt"), ("secret", job.driver, "token"))
        given = [base64.b64decode(job.kubectl.get(kind, name)["data"][key]).decode() for kind, name, key in secrets]
        metrics = elsewhere.ok("exec", "prometheus", "--", "python", "-c", SCRAPE, *given, names[job.driver])
        assert "statefulspark_" in metrics
    finally:
        operator.upgrade(jobNetworkPolicy={"enabled": True, "apiFrom": []})
