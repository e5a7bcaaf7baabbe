"""Watching through kopf: every event goes into the mirror, and the job or snapshot it is about into the queue. The only home of kopf.

kopf watches, reconnects and lists anew; it keeps no progress on objects here, since deciding and remembering is the plan's business.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

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
from statefulspark_operator.reconcile.looks import WorkKey
from statefulspark_operator.reconcile.mirror import Key, Mirror

_CHILDREN: Final = (
    ("", "v1", "services", "Service"),
    ("", "v1", "configmaps", "ConfigMap"),
    ("", "v1", "serviceaccounts", "ServiceAccount"),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
)
_WATCH_S: Final = 300
"""A watch is opened anew after this long: load balancers drop silent ones without a word."""


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


def watch_registry(mirror: Mirror, add: Callable[[WorkKey], None], *, canary: Callable[[Tree], None]) -> kopf.OperatorRegistry:
    """Handlers for everything that the operator watches.

    Args:
        mirror: Where objects go.
        add: Puts a job or a snapshot into the queue.
        canary: Told of every event of a job.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        inside = kopf.login_with_service_account(**kwargs)
        if inside is None:
            return kopf.login_with_kubeconfig(**kwargs)
        return replace(inside, server=api_server(os.environ) or inside.server)

    def add_job(key: Key | None) -> None:
        if key is not None:
            add(("job", *key))

    @kopf.on.event(GROUP, VERSION, JOB_PLURAL, registry=registry)
    async def saw_job(event: kopf.RawEvent, **_: Any) -> None:
        tree = _tree(event, f"{GROUP}/{VERSION}", JOB_KIND)
        canary(tree)
        add_job(mirror.saw_job(tree, gone=_gone(event)))

    @kopf.on.event(GROUP, VERSION, SNAPSHOT_PLURAL, registry=registry)
    async def saw_snapshot(event: kopf.RawEvent, **_: Any) -> None:
        tree = _tree(event, f"{GROUP}/{VERSION}", SNAPSHOT_KIND)
        add_job(mirror.saw_snapshot(tree, gone=_gone(event)))
        if not _gone(event):
            add(("snapshot", tree["metadata"]["namespace"], tree["metadata"]["name"]))

    @kopf.on.event("", "v1", "pods", registry=registry)
    async def saw_pod(event: kopf.RawEvent, **_: Any) -> None:
        add_job(mirror.saw_pod(_tree(event, "v1", "Pod"), gone=_gone(event)))

    for group, version, plural, kind in _CHILDREN:
        _watch_children(registry, mirror, add_job, (group, version, plural), kind)
    return registry


def _watch_children(
    registry: kopf.OperatorRegistry, mirror: Mirror, add_job: Callable[[Key | None], None], resource: tuple[str, str, str], kind: str
) -> None:
    group, version, plural = resource

    @kopf.on.event(group, version, plural, registry=registry, id=f"saw_{plural}")
    async def saw_child(event: kopf.RawEvent, **_: Any) -> None:
        api_version = f"{group}/{version}" if group else version
        add_job(mirror.saw_child(_tree(event, api_version, kind), gone=_gone(event)))


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
    settings.networking.request_timeout = request_timeout_s
    settings.networking.connect_timeout = 10.0
    settings.watching.server_timeout = _WATCH_S
    settings.watching.client_timeout = _WATCH_S + 20
    # Children are chosen by the server: the operator neither sees nor holds what others keep in the cluster.
    settings.watching.label_selectors = _selectors(settings.watching.label_selectors)
    return settings


def _selectors(selectors: Any) -> Any:
    selectors["", "v1", "pods"] = LABEL_JOB
    for group, version, plural, _ in _CHILDREN:
        selectors[group, version, plural] = f"{LABEL_JOB},{LABEL_MANAGED_BY}={FIELD_MANAGER}"
    return selectors


def _tree(event: Mapping[str, Any], api_version: str, kind: str) -> Tree:
    # Objects of a list come without their kind.
    return {"apiVersion": api_version, "kind": kind, **event["object"]}


def _gone(event: Mapping[str, Any]) -> bool:
    return bool(event["type"] == "DELETED")
