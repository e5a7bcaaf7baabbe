"""A real operator process against a real API server, with the rights that the chart gives it and no others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

PREFIX = "STATEFULSPARK_OPERATOR_"


def until(what: str, within_s: float, probe: Callable[[], Any]) -> Any:
    """Wait until ``probe`` returns something true, and return it."""
    deadline = time.monotonic() + within_s
    while not (found := probe()):
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.25)
    return found


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


class Process:
    """One operator."""

    def __init__(self, process: subprocess.Popen[bytes], ports: dict[str, int], log: Path) -> None:
        self.process = process
        self.log = log
        self._ports = ports

    def health(self) -> tuple[int, str]:
        """Status code and text of /healthz; 0 when nothing answers."""
        return self._get(self._ports["HEALTH_PORT"], "/healthz")

    def ready(self) -> bool:
        return self._get(self._ports["HEALTH_PORT"], "/readyz")[0] == 200

    def requests(self) -> dict[str, int]:
        """Requests to the API server so far, by verb and code."""
        text = self._get(self._ports["METRICS_PORT"], "/metrics")[1]
        found = re.findall(r'api_request_seconds_count\{code="(\w+)",verb="(\w+)"\} (\S+)', text)
        return {f"{verb} {code}": int(float(count)) for code, verb, count in found}

    def gauge(self, name: str) -> float:
        """A metric of the operator that has no labels."""
        text = self._get(self._ports["METRICS_PORT"], "/metrics")[1]
        return float(re.findall(rf"^statefulspark_operator_{name} (\S+)$", text, re.MULTILINE)[0])

    def end(self) -> float:
        """SIGTERM; returns the seconds until it has ended."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return time.monotonic() - began

    def _get(self, port: int, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


class Rights:
    """The operator's service account and its roles as the chart makes them."""

    def __init__(self, kubectl: Any, objects: list[dict[str, Any]]) -> None:
        self._kubectl = kubectl
        self._objects = objects

    def apply(self, namespace: str | None) -> None:
        """Make what is in ``namespace``; None makes what is in none."""
        kinds = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
        for each in self._objects:
            if each["kind"] in kinds and each["metadata"].get("namespace") == namespace:
                where = ["--namespace", namespace] if namespace is not None else []
                self._kubectl.ok("apply", *where, "-f", "-", given=each)

    def remove_cluster_wide(self) -> None:
        for each in self._objects:
            if each["kind"] in {"ClusterRole", "ClusterRoleBinding"}:
                self._kubectl.run("delete", each["kind"], each["metadata"]["name"], "--wait=false")

    def kubeconfig(self, path: Path) -> Path:
        """A kubeconfig of the service account."""
        config = yaml.safe_load(self._kubectl.ok("config", "view", "--raw", "--minify", "-o", "yaml"))
        account = next(each for each in self._objects if each["kind"] == "ServiceAccount")["metadata"]
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        url = f"/api/v1/namespaces/{account['namespace']}/serviceaccounts/{account['name']}/token"
        token = json.loads(self._kubectl.ok("create", "--raw", url, "-f", "-", given=asked))["status"]["token"]
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        path.write_text(yaml.safe_dump(config))
        return path


@contextlib.contextmanager
def operator_process(folder: Path, *, kubeconfig: Path, namespace: str, watched: list[str], canary: bool = False) -> Iterator[Process]:
    """The operator as a process of its own."""
    ports = {name: free_port() for name in ("HEALTH_PORT", "METRICS_PORT", "WEBHOOK_PORT")}
    settings = {
        "NAMESPACE": namespace, "POD_NAME": "test-0", "WATCH_NAMESPACES": ",".join(watched), "WEBHOOK_ENABLED": "false",
        "LEASE_NAME": "demo-statefulspark", "KEY_SECRET": "demo-statefulspark-key", "CANARY": str(canary).lower(),
        "DEPLOYMENT": "demo-statefulspark", **ports,
    }  # fmt: skip
    environ = os.environ | {PREFIX + name: str(value) for name, value in settings.items()} | {"KUBECONFIG": str(kubeconfig)}
    log = folder / "operator.log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", "statefulspark_operator"], env=environ, stdout=output, stderr=output, cwd=folder)
        try:
            yield Process(process, ports, log)
        finally:
            process.kill()
            process.wait()
