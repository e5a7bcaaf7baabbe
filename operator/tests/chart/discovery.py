"""An API server of some version as far as Helm asks it before it renders: version, groups and resources. It stores nothing."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KINDS = {
    "v1": ("Secret", "Service", "ServiceAccount", "ConfigMap"),
    "apps/v1": ("Deployment",),
    "rbac.authorization.k8s.io/v1": ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "policy/v1": ("PodDisruptionBudget",),
    "admissionregistration.k8s.io/v1": ("ValidatingWebhookConfiguration",),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
    "cert-manager.io/v1": ("Certificate", "Issuer"),
    "monitoring.coreos.com/v1": ("ServiceMonitor", "PrometheusRule"),
}
"""Kinds that the chart creates, by API version. Kubernetes 1.32 .. 1.37 serve these versions (Kubernetes' deprecation guide)."""


def answer(path: str, minor: int) -> dict[str, Any] | None:
    """The answer to a GET; None for what is not there."""
    kinds = KINDS
    groups: dict[str, list[dict[str, str]]] = {}
    for version in kinds:
        if "/" in version:
            groups.setdefault(version.split("/")[0], []).append({"groupVersion": version, "version": version.split("/")[1]})
    if path == "/version":
        return {"major": "1", "minor": f"{minor}", "gitVersion": f"v1.{minor}.2"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        listed = [{"name": name, "versions": versions, "preferredVersion": versions[0]} for name, versions in groups.items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    version = path.removeprefix("/apis/").removeprefix("/api/")
    if version not in kinds:
        return None
    resources = [
        {"name": f"{kind.lower()}s", "kind": kind, "namespaced": not kind.startswith(("Cluster", "Validating", "Custom")), "verbs": ["get"]}
        for kind in kinds[version]
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


@contextlib.contextmanager
def api_server(minor: int) -> Iterator[str]:
    """Serve as Kubernetes 1.``minor`` and yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            found = answer(path, minor)
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            # An empty document in protobuf is one of no length: Helm then checks no fields, which the test with a real server does.
            body = b"" if path == "/openapi/v2" else json.dumps(found or missing).encode()
            self.send_response(200 if found or not body else 404)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", f"{len(body)}")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
