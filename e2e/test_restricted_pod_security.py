"""Everything runs under the restricted Pod Security Standard, which the tests' own namespaces demand where the API server knows it."""

from __future__ import annotations

from typing import Any

from e2e.harness.jobs import CountingJob
from e2e.harness.operators import RELEASE, Operator

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
"""Kinds of volumes that the standard lets through."""


def violations(pod: dict[str, Any]) -> list[str]:
    """What the restricted standard of Kubernetes 1.32 forbids, and what we promise beyond: a root file system that is read-only."""
    spec = pod["spec"]
    whole = spec.get("securityContext", {})
    found = [f"{name} of the host" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    found += [f"volume {each['name']}" for each in spec.get("volumes", ()) if not (set(each) - {"name"}) <= VOLUMES]
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        security = container.get("securityContext", {})
        wanted = {
            "runAsNonRoot": security.get("runAsNonRoot", whole.get("runAsNonRoot")) is True,
            "runAsUser": security.get("runAsUser", whole.get("runAsUser")) != 0,
            "allowPrivilegeEscalation": security.get("allowPrivilegeEscalation") is False,
            "privileged": not security.get("privileged"),
            "capabilities": security.get("capabilities", {}).get("drop") == ["ALL"] and not security.get("capabilities", {}).get("add"),
            "seccompProfile": security.get("seccompProfile", whole.get("seccompProfile", {})).get("type")
            in {"RuntimeDefault", "Localhost"},
            "readOnlyRootFilesystem": security.get("readOnlyRootFilesystem") is True,
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", ())),
        }
        found += [f"{container['name']}: {name}" for name, holds in wanted.items() if not holds]
    return found


def test_restricted_pod_security(job: CountingJob, operator: Operator) -> None:
    """Driver, executors and operator as they really run; executors hold no token of the API server."""
    drivers, executors = job.pods("driver"), job.pods("executor")
    operators = operator.kubectl.items("pods", f"app.kubernetes.io/instance={RELEASE}")
    assert drivers
    assert executors
    assert operators
    for pod in [*drivers, *executors, *operators]:
        assert violations(pod) == [], pod["metadata"]["name"]
    for pod in executors:
        assert not any("projected" in each or "token" in each["name"] for each in pod["spec"].get("volumes", ()))
    done = job.kubectl.run("exec", job.driver, "--", "python", "-c", "open('/opt/job/x', 'w')")
    assert "Read-only file system" in done.stderr
    who = job.kubectl.ok("exec", job.driver, "--", "python", "-c", "import os; print(os.getuid(), os.getgid())")
    assert who.split() == ["10001", "10001"]
