"""A Kafka broker in a pod, and what goes through the topics of a job."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from e2e.harness.kubectl import Kubectl
from e2e.harness.timeouts import COMMAND_S, POD_READY_S

_POD: Final = "broker"
_PORT: Final = 9092
_TOPICS: Final = ("exec", "--stdin", _POD, "--", "python", "/opt/broker/topics.py")
_ACCOUNTS: Final = 40
_PAUSE_S: Final = 0.1
_ROWS: Final = 10
"""Payments of each pause."""

Balances = dict[str, list[tuple[int, int]]]
"""Number and balance after each payment of each account, in their order."""


class Kafka:
    """The broker, from the tests' side: its clients run in its pod, since nothing outside the cluster reaches the address that it tells clients."""

    def __init__(self, kubectl: Kubectl, image: str, address: str) -> None:
        self._kubectl = kubectl
        self.image = image
        """The broker's, which is also that of the job."""
        self.address = address
        """Address for pods."""

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        self._kubectl.ok(*_TOPICS, "create", topic, str(partitions))

    def balances(self, topic: str) -> Balances:
        """Read all committed messages of a topic."""
        found: Balances = {}
        for line in self._kubectl.ok(*_TOPICS, "read", topic).splitlines():
            key, value = json.loads(line)
            row = json.loads(value)
            assert key == row["account"]
            found.setdefault(key, []).append((row["count"], row["cents"]))
        return found

    def kill(self) -> None:
        """Kill the broker at once. It starts again by itself, with its data and its address."""
        self._kubectl.ok("exec", _POD, "--", "sh", "-c", "kill -9 $(cat /data/pid)")

    @contextmanager
    def payments(self, topic: str, seed: int) -> Iterator[Payments]:
        """Payments at a steady pace until the end of the block."""
        running = Payments(self._kubectl.command(*_TOPICS, "send", topic), seed)
        try:
            yield running
        finally:
            running.end()


class Payments(threading.Thread):
    """Sends payments, and knows the balances that follow from them. Imports nothing of the system."""

    def __init__(self, command: list[str], seed: int) -> None:
        super().__init__(name="payments", daemon=True)
        self.sent = 0
        self.expected: Balances = {}
        self._numbers = random.Random(seed)
        self._over = threading.Event()
        self._client = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.start()

    def run(self) -> None:
        """Send some and pause, until the end is asked for."""
        stream = self._client.stdin
        assert stream is not None
        while not self._over.wait(_PAUSE_S):
            for _ in range(_ROWS):
                account, cents = f"account-{self._numbers.randrange(_ACCOUNTS)}", self._numbers.randrange(-500, 1000)
                before = self.expected.setdefault(account, [])
                count, balance = before[-1] if before else (0, 0)
                before.append((count + 1, balance + cents))
                self.sent += 1
                stream.write(json.dumps([account, json.dumps({"account": account, "cents": cents})]) + "\n")
            stream.flush()

    def end(self) -> None:
        """Send no more; all are in the topic then."""
        self._over.set()
        self.join(COMMAND_S)
        _, error = self._client.communicate(timeout=COMMAND_S)
        assert self._client.returncode == 0, error


@contextmanager
def kafka_in(kubectl: Kubectl, image: str) -> Iterator[Kafka]:
    """Run a broker in a namespace."""
    ports = [{"port": _PORT, "protocol": "TCP"}]
    kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": _POD}, "spec": {"selector": {"app": _POD}, "ports": ports}})
    address = f"{kubectl.get('service', _POD)['spec']['clusterIP']}:{_PORT}"  # there may be no DNS
    kubectl.apply(_pod(image, address))
    kubectl.ok("wait", f"pod/{_POD}", "--for=condition=Ready", f"--timeout={POD_READY_S}s")
    try:
        yield Kafka(kubectl, image, address)
    finally:
        kubectl.run("delete", "pod", _POD, "--grace-period=1", "--wait=false")


def _pod(image: str, address: str) -> dict[str, Any]:
    container = {
        "name": _POD,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["tini", "--", "sh", "/opt/broker/broker.sh"],
        "env": [{"name": "DATA", "value": "/data"}, {"name": "ADVERTISED", "value": address}],
        "ports": [{"containerPort": _PORT}],
        "resources": {"requests": {"cpu": "100m", "memory": "600Mi"}},
        "readinessProbe": {"tcpSocket": {"port": _PORT}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _POD, "labels": {"app": _POD}},
        "spec": {
            "containers": [container],
            "enableServiceLinks": False,
            "securityContext": {"runAsNonRoot": True, "fsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }
