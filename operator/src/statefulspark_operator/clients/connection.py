"""Requests to the API server as plain JSON, through the `kubernetes` package's asyncio client. The only home of that package.

Objects stay dictionaries: the package's model classes validate every field in Python, which costs more than all else the operator does.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark_operator.api.names import FIELD_MANAGER

Tree = dict[str, Any]
"""An object of the API as JSON."""

_RETRY_S: Final = 2.0
_TIMEOUT: Final = aiohttp.ClientTimeout(total=30.0, sock_connect=10.0, sock_read=10.0)
_IDLE_S: Final = 1.0
"""aiohttp takes connections from its pool in turn: with its own 15 s a busy operator keeps as many open as it ever needed, 60 KiB each."""
_REFUSED: Final = frozenset({400, 403, 405, 413, 415, 422})


class NotFoundError(InvalidInputError):
    """There is no such object."""


class AlreadyExistsError(ConflictError):
    """There is an object of that name already."""


class NamespaceTerminatingError(ConflictError):
    """The namespace is being deleted, so nothing can be created in it."""


RequestObserver = Callable[[str, str, float], None]
"""Called after each request to the API server: its verb, how it was answered (``2xx``, another code, ``none``) and its seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request."""

    verb: str
    """As Kubernetes names it in RBAC, for metrics."""
    about: str
    """The object, for messages."""
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Tree | None = None
    content_type: str = "application/json"
    accept: str = "application/json"


async def cluster_configuration(environ: Mapping[str, str] = os.environ) -> Configuration:
    """The cluster this process runs in, else the one of ``KUBECONFIG``.

    Raises:
        InvalidInputError: Neither is configured.
    """
    configuration = Configuration()
    try:
        if environ.get(SERVICE_HOST_ENV_NAME) and os.path.isfile(SERVICE_TOKEN_FILENAME):  # noqa: ASYNC240, PTH113  a local file, once
            # The package reads the token again each minute; the kubelet replaces it long before it expires.
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the package's
        else:
            await load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the package's
    except (ConfigException, OSError, ValueError) as error:
        raise InvalidInputError(
            f"no Kubernetes cluster is configured: {error}", remedy="Run in a pod with a service account, or set KUBECONFIG"
        ) from error
    return configuration


class _Pool(RESTClientObject):
    """The package's connections, of which idle ones are closed soon."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=self.maxsize, ssl=self.ssl_context, keepalive_timeout=_IDLE_S)


class Connection:
    """A pool of connections to one API server.

    Args:
        configuration: Where it is, and as whom to speak to it.
    """

    def __init__(self, configuration: Configuration) -> None:
        # Any: most of the package's methods have no types.
        self._client: Any = ApiClient(configuration)
        self._client.user_agent = FIELD_MANAGER
        self._client.rest_client = _Pool(configuration)
        self._seen: RequestObserver | None = None

    def observe(self, seen: RequestObserver) -> None:
        """Call ``seen`` after every request from now on."""
        self._seen = seen

    async def send(self, request: Request) -> Tree:
        """Send a request and return the object of the answer.

        Raises:
            NotFoundError: There is no such object.
            AlreadyExistsError: There is an object of that name already.
            NamespaceTerminatingError: The namespace is being deleted.
            ConflictError: Another client changed the object.
            InvalidInputError: The API server rejects the request permanently; its message is included.
            UnavailableError: The API server does not respond, is overloaded, or the response is not from an API server.
        """
        began, code = time.perf_counter(), "none"
        try:
            status, reason, text = await self._exchange(request)
            tree = _parsed(text)
            if status < HTTPStatus.MULTIPLE_CHOICES and tree is None:
                message = f"{request.about}: the response is not from a Kubernetes API server. Check for proxies between the operator and the API server"
                raise UnavailableError(message, retry_after_s=_RETRY_S)
            code = "2xx" if status < HTTPStatus.MULTIPLE_CHOICES else str(status)
        finally:
            if self._seen is not None:
                self._seen(request.verb, code, time.perf_counter() - began)
        if code != "2xx" or tree is None:
            raise _refusal(request.about, status, tree or {}, reason)
        return tree

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _exchange(self, request: Request) -> tuple[int, str, bytes]:
        try:
            # The body goes past `param_serialize`, which would copy it field by field.
            method, url, headers, _, _ = await self._client.param_serialize(
                request.method,
                request.path,
                query_params=list(request.query.items()),
                header_params={"Accept": request.accept, "Content-Type": request.content_type},
                auth_settings=["BearerToken"],
            )
            answer = await self._client.call_api(method, url, headers, request.body, _request_timeout=_TIMEOUT)
            return answer.status, answer.reason or "", await answer.read()
        except (aiohttp.ClientError, OSError, ConfigException) as error:
            message = f"{request.about}: the API server does not respond ({type(error).__name__})"
            raise UnavailableError(message, retry_after_s=_RETRY_S) from error


def _parsed(text: bytes) -> Tree | None:
    try:
        tree = json.loads(text)
    except ValueError:
        return None
    return tree if isinstance(tree, dict) else None


def _refusal(about: str, code: int, status: Tree, reason: str) -> StatefulSparkError:
    message = f"{about}: {status.get('message') or status.get('reason') or reason or f'refused with status {code}'}"
    if code == HTTPStatus.CONFLICT:
        return AlreadyExistsError(message) if status.get("reason") == "AlreadyExists" else ConflictError(message)
    if code == HTTPStatus.FORBIDDEN and _namespace_terminating(status):
        return NamespaceTerminatingError(message)
    if code == HTTPStatus.NOT_FOUND:
        return NotFoundError(message)
    return InvalidInputError(message) if code in _REFUSED else UnavailableError(message, retry_after_s=_RETRY_S)


def _namespace_terminating(status: Tree) -> bool:
    causes = (status.get("details") or {}).get("causes") or ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
