"""Who reaches which ports of whom: seen from within pods, with nothing but TCP."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from e2e.harness.images import Images
from e2e.harness.kubectl import Kubectl, wait_for
from e2e.harness.timeouts import ENFORCED_S, POD_READY_S

_PORT: Final = 9000
_LISTENING: Final = """
import json
found = set()
for name in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{name}").read().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        address, port = local.split(":")
        if state == "0A" and not address.endswith(("0100007F", "00000000000000000000000001000000")):
            found.add(int(port, 16))
print(json.dumps(sorted(found)))
"""
_CONNECT: Final = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def connects(port):
    try:
        socket.create_connection((sys.argv[1], port), timeout=3).close()
    except OSError:
        return False
    return True

ports = json.loads(sys.argv[2])
with ThreadPoolExecutor(len(ports)) as pool:
    print(json.dumps([port for port, does in zip(ports, pool.map(connects, ports)) if does]))
"""


def listening(kubectl: Kubectl, pod: str) -> list[int]:
    """Returns the ports of a pod that other pods could connect to."""
    return list(json.loads(kubectl.ok("exec", pod, "--", "python", "-c", _LISTENING)))


def reached(kubectl: Kubectl, pod: str, address: str, ports: Collection[int]) -> set[int]:
    """Returns the ports of an address to which a pod can connect within 3 s."""
    return set(json.loads(kubectl.ok("exec", pod, "--", "python", "-c", _CONNECT, address, json.dumps(sorted(ports)))))


@contextmanager
def idle_pod(
    kubectl: Kubectl, image: str, name: str, labels: Mapping[str, str], command: tuple[str, ...] = ("sleep", "infinity")
) -> Iterator[Any]:
    """A pod with Python that does nothing, or runs ``command``, while the context lasts; yields the object. Fits the restricted Pod Security Standard."""
    container = {
        "name": "idle",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": dict(labels)},
            "spec": {
                "containers": [container],
                "securityContext": security,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 0,
            },
        }
    )
    try:
        kubectl.ok("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={POD_READY_S}s")
        yield kubectl.get("pod", name)
    finally:
        kubectl.run("delete", "pod", name, "--ignore-not-found", "--wait=false")


def enforces_policies(kubectl: Kubectl, images: Images) -> bool:
    """True if the cluster keeps pods from connecting where a NetworkPolicy forbids it: asks two pods of a namespace made for this.

    Raises:
        AssertionError: The pods cannot connect without a policy either, so nothing can be concluded.
    """
    kubectl.create_namespace()
    try:
        serving = ("python", "-m", "http.server", str(_PORT))
        with idle_pod(kubectl, images.store, "serving", {"app": "serving"}, serving) as pod, idle_pod(kubectl, images.store, "calling", {}):
            address = pod["status"]["podIP"]

            def connects() -> bool:
                return _PORT in reached(kubectl, "calling", address, [_PORT])

            wait_for("a pod connects to another without a policy", POD_READY_S, connects)
            kubectl.apply(
                {
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "NetworkPolicy",
                    "metadata": {"name": "closed"},
                    "spec": {"podSelector": {"matchLabels": {"app": "serving"}}, "policyTypes": ["Ingress"], "ingress": []},
                }
            )
            try:
                wait_for("a policy keeps it from connecting", ENFORCED_S, lambda: not connects())
            except AssertionError:
                return False
            return True
    finally:
        kubectl.delete_namespace(wait=False)
