"""The Kubernetes API as the operator uses it: objects are plain trees, errors are those of `statefulspark.errors`. The only home of lightkube."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import httpx2
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources import coordination_v1, core_v1, policy_v1, rbac_authorization_v1
from lightkube.types import PatchType

from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError, UnavailableError
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

_RETRY_S: Final = 2.0
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


RequestSeen = Callable[[str, str, float], None]
"""Told of each request to the API server: its verb, how it was answered (``2xx``, another code, ``none``) and its seconds."""


class _AbsentError(InvalidInputError):
    """There is no such object."""


class _ExistsError(ConflictError):
    """There is an object of that name already."""


class Cluster:
    """Reads and writes objects.

    Every method raises UnavailableError when the API server does not answer or is overloaded, ConflictError when somebody else changed
    the object, InvalidInputError when the API server refuses the request for good (its sentence is in the text).
    """

    def __init__(self, client: AsyncClient | None = None) -> None:
        """Take the cluster this process runs in, else the one of ``KUBECONFIG``."""
        # Any: lightkube's overloads tell kinds apart by type, and here the kind is a value.
        self._client: Any = client or AsyncClient(field_manager=FIELD_MANAGER, timeout=httpx2.Timeout(10.0))
        self._seen: RequestSeen | None = None

    def observe(self, seen: RequestSeen) -> None:
        """Tell ``seen`` of every request from now on."""
        self._seen = seen

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Tree | None:
        """Read an object; None when there is none."""
        try:
            async with self._request("get", f"{kind} {namespace}/{name}"):
                return _tree(await self._client.get(_RESOURCES[api_version, kind], name, namespace=namespace))
        except _AbsentError:
            return None

    async def apply(self, document: Tree) -> Tree:
        """Make an object as ``document`` says, by server-side apply: fields of others stay, contested ones become ours."""
        return await self._apply(_RESOURCES[document["apiVersion"], document["kind"]], document, FIELD_MANAGER)

    async def apply_status(self, api_version: str, kind: str, namespace: str, name: str, status: Tree) -> Tree:
        """Make the status of an object as ``status`` says; what the operator set before and is not there now is removed."""
        document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "status": status}
        return await self._apply(_RESOURCES[api_version, kind].Status, document, STATUS_MANAGER)

    async def _apply(self, resource: Any, document: Tree, manager: str) -> Tree:
        name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
        async with self._request("apply", _where(document)):
            return _tree(
                await self._client.patch(
                    resource, name, document, namespace=namespace, patch_type=PatchType.APPLY, field_manager=manager, force=True
                )
            )

    async def create(self, document: Tree) -> bool:
        """Create an object; False when one of that name exists."""
        resource = _RESOURCES[document["apiVersion"], document["kind"]]
        try:
            async with self._request("create", _where(document)):
                await self._client.create(resource.from_dict(document), namespace=document["metadata"]["namespace"])
        except _ExistsError:
            return False
        return True

    async def replace(self, document: Tree) -> Tree:
        """Write an object as a whole; ConflictError when it is not the one of ``metadata.resourceVersion`` any more."""
        resource = _RESOURCES[document["apiVersion"], document["kind"]]
        async with self._request("update", _where(document)):
            return _tree(await self._client.replace(resource.from_dict(document), namespace=document["metadata"]["namespace"]))

    async def merge(self, api_version: str, kind: str, namespace: str, name: str, patch: Tree) -> Tree | None:
        """Change some fields; None when the object is gone. With ``metadata.resourceVersion`` in the patch, only of that version."""
        resource = _RESOURCES[api_version, kind]
        try:
            async with self._request("patch", f"{kind} {namespace}/{name}"):
                return _tree(
                    await self._client.patch(
                        resource, name, patch, namespace=namespace, patch_type=PatchType.MERGE, field_manager=PATCH_MANAGER
                    )
                )
        except _AbsentError:
            return None

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str | None = None, grace_s: int | None = None
    ) -> None:
        """Delete an object, if it is there and (with ``uid``) still the same."""
        if uid is not None:
            present = await self.get(api_version, kind, namespace, name)
            if present is None or present["metadata"]["uid"] != uid:
                return
        with contextlib.suppress(_AbsentError):
            async with self._request("delete", f"{kind} {namespace}/{name}"):
                await self._client.delete(_RESOURCES[api_version, kind], name, namespace=namespace, grace_period=grace_s)

    async def disruption_budgets(self, namespace: str) -> str | None:
        """The API version of pod disruption budgets that this cluster serves; None when it serves none.

        Args:
            namespace: One where they may be listed: an API server forbids before it says that there is no such thing.
        """
        for version in ("policy/v1", "policy/v1beta1"):
            try:
                async with self._request("list", version):
                    async for _ in self._client.list(_RESOURCES[version, "PodDisruptionBudget"], namespace=namespace, chunk_size=1):
                        break
            except _AbsentError:
                continue
            except InvalidInputError:
                return version  # served, but not to be listed there
            return version
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    @contextlib.asynccontextmanager
    async def _request(self, verb: str, what: str) -> AsyncIterator[None]:
        """Time one request, and raise what goes wrong in it as an error of ours."""
        began, code = time.perf_counter(), "2xx"
        try:
            yield
        except httpx2.HTTPStatusError as error:
            code = str(error.response.status_code)
            raise _refusal(error, what) from error
        except httpx2.HTTPError as error:
            code = "none"
            message = f"{what}: the API server does not answer ({type(error).__name__})"
            raise UnavailableError(message, retry_after_s=_RETRY_S) from error
        except (KeyError, ValueError) as error:
            # lightkube's, when what stands between answers in words of its own: an error without a content type, a page for an object.
            code = "none"
            message = f"{what}: the answer is not one of a Kubernetes API server; look at what stands between"
            raise UnavailableError(message, retry_after_s=_RETRY_S) from error
        finally:
            if self._seen is not None:
                self._seen(verb, code, time.perf_counter() - began)


def _tree(item: Any) -> Tree:
    tree: Tree = item.to_dict()
    return tree


def _where(document: Tree) -> str:
    metadata = document["metadata"]
    return f"{document['kind']} {metadata['namespace']}/{metadata.get('name') or metadata.get('generateName')}"


def _refusal(error: httpx2.HTTPStatusError, what: str) -> StatefulSparkError:
    code = error.response.status_code
    said = (error.status.message or error.status.reason) if isinstance(error, ApiError) else error.response.reason_phrase
    message = f"{what}: {said or f'refused with status {code}'}"
    if code == _CONFLICT:
        exists = isinstance(error, ApiError) and error.status.reason == "AlreadyExists"
        return _ExistsError(message) if exists else ConflictError(message)
    if code == _NOT_FOUND:
        return _AbsentError(message)
    if code in _REFUSED:
        return InvalidInputError(message)
    return UnavailableError(message, retry_after_s=_RETRY_S)
