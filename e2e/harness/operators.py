"""The operator, installed by Helm from the chart of this tree. The only home of helm_python here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import helm_python

from e2e.harness.images import Images
from e2e.harness.kubectl import Kubectl, wait_for
from e2e.harness.providers import ROOT
from e2e.harness.timeouts import POD_READY_S

CHART: Final = ROOT / "charts" / "statefulspark"
RELEASE: Final = "e2e"
DEPLOYMENT: Final = f"{RELEASE}-statefulspark"
LEASE_DURATION_S: Final = 15


class Operator:
    """The release, and its pods."""

    def __init__(self, kubectl: Kubectl, config: helm_python.Config, values: dict[str, Any]) -> None:
        self.kubectl = kubectl
        self._config = config
        self._values = values

    def upgrade(self, **values: Any) -> None:
        """Upgrade the release with other values and wait until its pods are there."""
        self._values |= values
        self._config.upgrade(CHART, RELEASE, self._values)
        self.wait_ready()

    def value(self, name: str) -> Any:
        """A value of the release as it was installed or upgraded last."""
        return self._values[name]

    def wait_ready(self) -> None:
        """Wait until all replicas are ready and nothing of an older release is left."""
        self.kubectl.ok("rollout", "status", f"deployment/{DEPLOYMENT}", f"--timeout={POD_READY_S}s")

    def leader(self) -> str:
        """Name of the pod that holds the Lease."""

        def look() -> str | None:
            leases = self.kubectl.items("leases")
            holders = [each["spec"].get("holderIdentity") or "" for each in leases]
            pods = self.pods()
            return next((pod for pod in pods for holder in holders if holder.startswith(pod)), None)

        return wait_for("a replica leads", POD_READY_S, look, lambda: self.kubectl.items("leases"))

    def pods(self) -> list[str]:
        """Names of its pods."""
        return [each["metadata"]["name"] for each in self.kubectl.items("pods", f"app.kubernetes.io/instance={RELEASE}")]

    def kill(self, pod: str) -> None:
        """Kill a replica without a word."""
        self.kubectl.ok("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


@contextmanager
def operator_in(kubectl: Kubectl, images: Images, namespaces: Sequence[str]) -> Iterator[Operator]:
    """Install the operator with two replicas for ``namespaces``, which are there, and its own."""
    kubectl.create_namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})
    kubectl.ok("apply", "--validate=false", "-f", str(ROOT / "crds"))
    kubectl.ok("wait", "--for=condition=Established", f"--timeout={POD_READY_S}s", "-f", str(ROOT / "crds"))
    repository, _, tag = images.operator.rpartition(":")
    values: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag},
        "replicas": 2,
        "watchNamespaces": [*namespaces, kubectl.namespace],
        "leaderElection": {"enabled": True, "leaseDuration": f"{LEASE_DURATION_S}s"},
        "crds": {"install": False},
        "reconcile": {"interval": "5s"},  # what a status says of a running job is as old as that
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    with helm_python.Config(namespace=kubectl.namespace, kubeconfig_path=os.environ["KUBECONFIG"]) as config:
        config.install(CHART, RELEASE, values)
        try:
            operator = Operator(kubectl, config, values)
            operator.wait_ready()
            yield operator
        finally:
            with contextlib.suppress(helm_python.HelmError):
                config.uninstall(RELEASE)
            kubectl.delete_namespace(wait=False)
