"""The operator's client for the Kubernetes API. Objects are plain dictionaries, errors those of `statefulspark.errors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark_operator.api.names import (
    FIELD_MANAGER,
    GROUP,
    JOB_KIND,
    JOB_PLURAL,
    PATCH_MANAGER,
    SNAPSHOT_KIND,
    SNAPSHOT_PLURAL,
    STATUS_MANAGER,
    VERSION,
)
from statefulspark_operator.clients.connection import (
    AlreadyExistsError,
    Connection,
    NotFoundError,
    Request,
    RequestObserver,
    Tree,
    cluster_configuration,
)

__all__ = ["Cluster", "Tree"]

_PLURALS: Final[Mapping[tuple[str, str], str]] = {
    ("v1", "Pod"): "pods",
    ("v1", "Service"): "services",
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Secret"): "secrets",
    ("v1", "ServiceAccount"): "serviceaccounts",
    ("v1", "Event"): "events",
    ("rbac.authorization.k8s.io/v1", "Role"): "roles",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "rolebindings",
    ("policy/v1", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("policy/v1beta1", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("apps/v1", "Deployment"): "deployments",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networkpolicies",
    ("coordination.k8s.io/v1", "Lease"): "leases",
    (f"{GROUP}/{VERSION}", JOB_KIND): JOB_PLURAL,
    (f"{GROUP}/{VERSION}", SNAPSHOT_KIND): SNAPSHOT_PLURAL,
}
_APPLY: Final = "application/apply-patch+yaml"
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PAGE: Final = "500"
_MERGE: Final = "application/merge-patch+json"


class Cluster:
    """Reads and writes objects.

    Every method raises UnavailableError if the API server does not respond or is overloaded, ConflictError if another client changed
    the object, and InvalidInputError if the API server rejects the request permanently (with its message).
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls) -> Self:
        """Connects to the cluster that this process runs in, otherwise to that of ``KUBECONFIG``.

        Raises:
            InvalidInputError: Neither is configured.
        """
        return cls(Connection(await cluster_configuration()))

    def observe(self, seen: RequestObserver) -> None:
        """Call ``seen`` after every request from now on."""
        self._connection.observe(seen)

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Tree | None:
        """Reads an object; None if it does not exist."""
        try:
            return await self._send("get", "GET", (api_version, kind, namespace, name))
        except NotFoundError:
            return None

    async def apply(self, document: Tree) -> Tree:
        """Applies ``document`` by server-side apply. Fields of other managers are kept; conflicting fields are taken over."""
        return await self._apply(_where(document), document, FIELD_MANAGER)

    async def apply_status(self, api_version: str, kind: str, namespace: str, name: str, status: Tree, *, resource_version: str) -> Tree:
        """Applies ``status`` to an object's status. Fields that the operator set before and that are absent now are removed.

        Args:
            api_version: API group and version of the object, for example ``statefulspark.io/v1alpha1``.
            kind: Kind of the object, for example ``StatefulSparkJob``.
            namespace: Namespace of the object.
            name: Name of the object.
            status: The whole status.
            resource_version: The version that ``status`` was planned from. Raises ConflictError if it is no longer current: another
                reconciliation, an earlier leader or a new object of the same name must not lose what it has written.
        """
        metadata = {"name": name, "namespace": namespace, "resourceVersion": resource_version}
        document = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "status": status}
        return await self._apply(_where(document), document, STATUS_MANAGER, subresource="/status")

    async def _apply(self, where: _Where, document: Tree, manager: str, *, subresource: str = "") -> Tree:
        query = {"fieldManager": manager, "force": "true"}
        return await self._send("apply", "PATCH", where, subresource=subresource, query=query, body=document, content_type=_APPLY)

    async def create(self, document: Tree, *, dry_run: bool = False) -> Tree | None:
        """Creates an object and returns it; None if one of that name exists. A dry run passes admission and quotas and keeps nothing."""
        api_version, kind, namespace, name = _where(document)
        request = Request(
            verb="create",
            about=f"{kind} {namespace}/{name}",
            method="POST",
            path=_collection(api_version, kind, namespace),
            query={"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})},
            body=document,
        )
        try:
            return await self._connection.send(request)
        except AlreadyExistsError:
            return None

    async def update(self, document: Tree) -> Tree:
        """Replaces an object. Raises ConflictError if ``metadata.resourceVersion`` is no longer current."""
        return await self._send("update", "PUT", _where(document), query={"fieldManager": FIELD_MANAGER}, body=document)

    async def patch(self, api_version: str, kind: str, namespace: str, name: str, patch: Tree) -> Tree | None:
        """Patches some fields; None if the object does not exist. With ``metadata.resourceVersion`` in the patch, only that version."""
        where = (api_version, kind, namespace, name)
        try:
            return await self._send("patch", "PATCH", where, query={"fieldManager": PATCH_MANAGER}, body=patch, content_type=_MERGE)
        except NotFoundError:
            return None

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str | None = None, grace_s: int | None = None
    ) -> None:
        """Deletes an object if it exists and, with ``uid``, is still the same."""
        options: Tree = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            await self._send("delete", "DELETE", (api_version, kind, namespace, name), body=options)
        except NotFoundError:
            return
        except ConflictError:
            if uid is None:
                raise

    async def namespace(self, name: str) -> Tree | None:
        """Reads a namespace; None if it does not exist."""
        try:
            return await self._connection.send(
                Request(verb="get", about=f"Namespace {name}", method="GET", path=f"/api/v1/namespaces/{name}")
            )
        except NotFoundError:
            return None

    async def uids(self, api_version: str, kind: str, namespace: str | None, selector: str) -> frozenset[str]:
        """The uids of all objects of a kind that match a label selector, in a namespace or in the whole cluster."""
        path = _collection(api_version, kind, namespace)
        found: set[str] = set()
        query = {"limit": _PAGE, "labelSelector": selector}
        while True:
            request = Request(verb="list", about=f"{kind} {namespace or '*'}", method="GET", path=path, query=query, accept=_METADATA_ONLY)
            page = await self._connection.send(request)
            found.update(each["metadata"]["uid"] for each in page.get("items") or ())
            after = page["metadata"].get("continue")
            if not after:
                return frozenset(found)
            query = {**query, "continue": after}

    async def disruption_budgets(self, namespace: str) -> str | None:
        """The API version of pod disruption budgets that this cluster serves; None when it serves none.

        Args:
            namespace: One where they may be listed: an API server forbids before it says that there is no such thing.
        """
        for version in ("policy/v1", "policy/v1beta1"):
            path = _collection(version, "PodDisruptionBudget", namespace)
            try:
                await self._connection.send(Request(verb="list", about=version, method="GET", path=path, query={"limit": "1"}))
            except NotFoundError:
                continue
            except InvalidInputError:
                return version  # served, but not to be listed there
            return version
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def _send(
        self,
        verb: str,
        method: str,
        where: _Where,
        *,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        body: Tree | None = None,
        content_type: str = "application/json",
    ) -> Tree:
        api_version, kind, namespace, name = where
        return await self._connection.send(
            Request(
                verb=verb,
                about=f"{kind} {namespace}/{name}",
                method=method,
                path=f"{_collection(api_version, kind, namespace)}/{name}{subresource}",
                query=query or {},
                body=body,
                content_type=content_type,
            )
        )


_Where = tuple[str, str, str, str]
"""API version, kind, namespace and name."""


def _where(document: Tree) -> _Where:
    metadata = document["metadata"]
    return document["apiVersion"], document["kind"], metadata["namespace"], metadata.get("name") or metadata.get("generateName")


def _collection(api_version: str, kind: str, namespace: str | None) -> str:
    root = "apis" if "/" in api_version else "api"
    where = f"namespaces/{namespace}/" if namespace is not None else ""
    return f"/{root}/{api_version}/{where}{_PLURALS[api_version, kind]}"
