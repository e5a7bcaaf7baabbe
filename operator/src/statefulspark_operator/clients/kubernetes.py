"""The Kubernetes API as the operator uses it: objects are plain trees, errors are those of `statefulspark.errors`. The only home of lightkube."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx2
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources import coordination_v1, core_v1, policy_v1, rbac_authorization_v1
from lightkube.types import PatchType

from statefulspark.errors import ConflictError, InvalidInputError, UnavailableError
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

Tree = dict[str, Any]
"""An object of the API as JSON."""

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_REFUSED: Final = frozenset({400, 403, 405, 413, 415, 422})

_Job = create_namespaced_resource(GROUP, VERSION, JOB_KIND, JOB_PLURAL)
_Snapshot = create_namespaced_resource(GROUP, VERSION, SNAPSHOT_KIND, SNAPSHOT_PLURAL)
_OldDisruptionBudget = create_namespaced_resource("policy", "v1beta1", "PodDisruptionBudget", "poddisruptionbudgets")

_RESOURCES: Final[Mapping[tuple[str, str], Any]] = {
    ("v1", "Pod"): core_v1.Pod,
    ("v1", "Service"): core_v1.Service,
    ("v1", "ConfigMap"): core_v1.ConfigMap,
    ("v1", "Secret"): core_v1.Secret,
    ("v1", "ServiceAccount"): core_v1.ServiceAccount,
    ("v1", "Event"): core_v1.Event,
    ("rbac.authorization.k8s.io/v1", "Role"): rbac_authorization_v1.Role,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): rbac_authorization_v1.RoleBinding,
    ("policy/v1", "PodDisruptionBudget"): policy_v1.PodDisruptionBudget,
    ("policy/v1beta1", "PodDisruptionBudget"): _OldDisruptionBudget,
    ("coordination.k8s.io/v1", "Lease"): coordination_v1.Lease,
    (f"{GROUP}/{VERSION}", JOB_KIND): _Job,
    (f"{GROUP}/{VERSION}", SNAPSHOT_KIND): _Snapshot,
}


class Cluster:
    """Reads and writes objects.

    Every method raises UnavailableError when the API server does not answer or is overloaded, ConflictError when somebody else changed
    the object, InvalidInputError when the API server refuses the request for good (its sentence is in the text).
    """

    def __init__(self, client: AsyncClient | None = None) -> None:
        """Take the cluster this process runs in, else the one of ``KUBECONFIG``."""
        # Any: lightkube's overloads tell kinds apart by type, and here the kind is a value.
        self._client: Any = client or AsyncClient(field_manager=FIELD_MANAGER, timeout=httpx2.Timeout(10.0))

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Tree | None:
        """Read an object; None when there is none."""
        try:
            return _tree(await self._client.get(_RESOURCES[api_version, kind], name, namespace=namespace))
        except ApiError as error:
            if error.status.code == _NOT_FOUND:
                return None
            raise _translated(error, f"{kind} {namespace}/{name}") from error
        except httpx2.HTTPError as error:
            raise _translated(error, f"{kind} {namespace}/{name}") from error

    async def apply(self, document: Tree) -> Tree:
        """Make an object as ``document`` says, by server-side apply: fields of others stay, contested ones become ours."""
        metadata = document["metadata"]
        where = f"{document['kind']} {metadata['namespace']}/{metadata['name']}"
        try:
            resource = _RESOURCES[document["apiVersion"], document["kind"]]
            return _tree(
                await self._client.patch(
                    resource,
                    metadata["name"],
                    document,
                    namespace=metadata["namespace"],
                    patch_type=PatchType.APPLY,
                    field_manager=FIELD_MANAGER,
                    force=True,
                )
            )
        except httpx2.HTTPError as error:
            raise _translated(error, where) from error

    async def apply_status(self, api_version: str, kind: str, namespace: str, name: str, status: Tree) -> Tree:
        """Make the status of an object as ``status`` says; what the operator set before and is not there now is removed."""
        resource = _RESOURCES[api_version, kind].Status
        document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "status": status}
        try:
            return _tree(
                await self._client.patch(
                    resource,
                    name,
                    document,
                    namespace=namespace,
                    patch_type=PatchType.APPLY,
                    field_manager=STATUS_MANAGER,
                    force=True,
                )
            )
        except httpx2.HTTPError as error:
            raise _translated(error, f"{kind} {namespace}/{name}") from error

    async def create(self, document: Tree) -> bool:
        """Create an object; False when one of that name exists."""
        metadata = document["metadata"]
        where = f"{document['kind']} {metadata['namespace']}/{metadata.get('name') or metadata.get('generateName')}"
        resource = _RESOURCES[document["apiVersion"], document["kind"]]
        try:
            await self._client.create(resource.from_dict(document), namespace=metadata["namespace"])
        except ApiError as error:
            if error.status.code == _CONFLICT and error.status.reason == "AlreadyExists":
                return False
            raise _translated(error, where) from error
        except httpx2.HTTPError as error:
            raise _translated(error, where) from error
        return True

    async def replace(self, document: Tree) -> Tree:
        """Write an object as a whole; ConflictError when it is not the one of ``metadata.resourceVersion`` any more."""
        metadata = document["metadata"]
        resource = _RESOURCES[document["apiVersion"], document["kind"]]
        try:
            return _tree(await self._client.replace(resource.from_dict(document), namespace=metadata["namespace"]))
        except httpx2.HTTPError as error:
            raise _translated(error, f"{document['kind']} {metadata['namespace']}/{metadata['name']}") from error

    async def merge(self, api_version: str, kind: str, namespace: str, name: str, patch: Tree) -> Tree | None:
        """Change some fields; None when the object is gone. With ``metadata.resourceVersion`` in the patch, only of that version."""
        try:
            return _tree(
                await self._client.patch(
                    _RESOURCES[api_version, kind],
                    name,
                    patch,
                    namespace=namespace,
                    patch_type=PatchType.MERGE,
                    field_manager=PATCH_MANAGER,
                )
            )
        except ApiError as error:
            if error.status.code == _NOT_FOUND:
                return None
            raise _translated(error, f"{kind} {namespace}/{name}") from error
        except httpx2.HTTPError as error:
            raise _translated(error, f"{kind} {namespace}/{name}") from error

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str | None = None, grace_s: int | None = None
    ) -> None:
        """Delete an object, if it is there and (with ``uid``) still the same."""
        if uid is not None:
            present = await self.get(api_version, kind, namespace, name)
            if present is None or present["metadata"]["uid"] != uid:
                return
        try:
            await self._client.delete(_RESOURCES[api_version, kind], name, namespace=namespace, grace_period=grace_s)
        except ApiError as error:
            if error.status.code != _NOT_FOUND:
                raise _translated(error, f"{kind} {namespace}/{name}") from error
        except httpx2.HTTPError as error:
            raise _translated(error, f"{kind} {namespace}/{name}") from error

    async def disruption_budgets(self) -> str | None:
        """The API version of pod disruption budgets that this cluster serves; None when it serves none."""
        for version in ("policy/v1", "policy/v1beta1"):
            try:
                async for _ in self._client.list(_RESOURCES[version, "PodDisruptionBudget"], namespace="default", chunk_size=1):
                    break
            except ApiError as error:
                if error.status.code == _NOT_FOUND:
                    continue
                if error.status.code in _REFUSED:
                    return version  # served, but not to be listed there
                raise _translated(error, "policy") from error
            except httpx2.HTTPError as error:
                if isinstance(error, httpx2.HTTPStatusError) and error.response.status_code == _NOT_FOUND:
                    continue
                raise _translated(error, "policy") from error
            return version
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _tree(item: Any) -> Tree:
    tree: Tree = item.to_dict()
    return tree


def _translated(error: Exception, what: str) -> Exception:
    if isinstance(error, ApiError):
        message = f"{what}: {error.status.message or error.status.reason or 'refused'}"
        code = error.status.code or 0
        if code == _CONFLICT:
            return ConflictError(message)
        if code in _REFUSED or code == _NOT_FOUND:
            return InvalidInputError(message)
        return UnavailableError(message, retry_after_s=2.0)
    return UnavailableError(f"{what}: the API server does not answer ({type(error).__name__})", retry_after_s=2.0)
