"""The resources that kopf watches, its credentials and its settings. With `handlers.watch_thread` the only home of kopf.

kopf watches, reconnects and lists again. It stores no progress on objects: the operator keeps its own in the status.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import aiohttp
import kopf

from statefulspark_operator.api.names import (
    ANNOTATION_PREFIX,
    FIELD_MANAGER,
    GROUP,
    JOB_KIND,
    JOB_PLURAL,
    LABEL_JOB,
    LABEL_MANAGED_BY,
    SNAPSHOT_KIND,
    SNAPSHOT_PLURAL,
    VERSION,
)
from statefulspark_operator.clients.kubernetes import Tree

CHILDREN: Final = (
    ("", "v1", "services", "Service"),
    ("", "v1", "configmaps", "ConfigMap"),
    ("", "v1", "serviceaccounts", "ServiceAccount"),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
)
WATCHED: Final = (
    (GROUP, VERSION, JOB_PLURAL, JOB_KIND),
    (GROUP, VERSION, SNAPSHOT_PLURAL, SNAPSHOT_KIND),
    ("", "v1", "pods", "Pod"),
    *CHILDREN,
)
"""Group, version, plural and kind."""

EventCallback = Callable[[Tree, bool], None]
"""Called with an object that was added or modified, or deleted (True)."""

CHILD_SELECTOR: Final = f"{LABEL_JOB},{LABEL_MANAGED_BY}={FIELD_MANAGER}"
_WATCH_S: Final = 300
"""A watch is reopened after this time: load balancers silently drop idle connections."""


class _NothingKept(kopf.DiffBaseStorage):
    """kopf compares each object with what it was last, for handlers of changes, of which there are none here: it copies the object to do so."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        return None


def api_server(environ: Mapping[str, str]) -> str | None:
    """URL of the API server as Kubernetes tells each container, None outside of one. kopf would ask DNS, which a cluster may not have."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def login_session(traces: list[aiohttp.TraceConfig], **kwargs: Any) -> kopf.AiohttpSession | None:
    """A session of this process's own, as the pod's service account, else as ``KUBECONFIG`` says; None if there is neither."""
    info = kopf.login_with_service_account(**kwargs)
    info = replace(info, server=api_server(os.environ) or info.server) if info is not None else kopf.login_with_kubeconfig(**kwargs)
    if info is None:
        return None
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        trace_configs=traces,
    )
    return kopf.AiohttpSession(server=info.server, default_namespace=info.default_namespace, aiohttp_session=session)


def watch_registry(on_event: EventCallback) -> kopf.OperatorRegistry:
    """Handlers for everything that the operator watches.

    Args:
        on_event: Called in kopf's thread.
    """
    registry = kopf.OperatorRegistry()
    for group, version, plural, kind in WATCHED:
        _watch(registry, on_event, (group, version, plural), kind)
    return registry


def _watch(registry: kopf.OperatorRegistry, on_event: EventCallback, resource: tuple[str, str, str], kind: str) -> None:
    group, version, plural = resource
    api_version = f"{group}/{version}" if group else version

    @kopf.on.event(group, version, plural, registry=registry, id=f"saw_{plural}")
    async def saw(event: kopf.RawEvent, **_: Any) -> None:
        # Objects of a list come without their kind.
        on_event({"apiVersion": api_version, "kind": kind, **event["object"]}, event["type"] == "DELETED")


def watch_settings(*, request_timeout_s: float = 60.0) -> kopf.OperatorSettings:
    """Kopf's settings for a process that is up for months."""
    settings = kopf.OperatorSettings()
    # Not the operator's own: kopf takes its finalizer off objects for which it has no handler that needs one.
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=ANNOTATION_PREFIX)
    settings.persistence.diffbase_storage = _NothingKept()
    settings.posting.enabled = False
    # Namespaces are given by name or all, and the definitions are there first: no rights on namespaces and definitions are needed.
    settings.scanning.disabled = True
    settings.peering.standalone = True
    # Would kill the process, not only kopf.
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = request_timeout_s
    settings.networking.connect_timeout = 10.0
    settings.watching.server_timeout = _WATCH_S
    settings.watching.client_timeout = _WATCH_S + 20
    # Children are chosen by the server: the operator neither sees nor holds what others keep in the cluster.
    settings.watching.label_selectors = _selectors(settings.watching.label_selectors)
    return settings


def _selectors(selectors: Any) -> Any:
    selectors["", "v1", "pods"] = LABEL_JOB
    for group, version, plural, _ in CHILDREN:
        selectors[group, version, plural] = CHILD_SELECTOR
    return selectors
