"""AzureStore: objects in a container of Azure Storage (``abfss://``). The only module that imports Microsoft's client.

Microsoft's own client because it knows every identity of Azure and repeats the service's error codes. It uses the Blob service, which accounts
with and without a hierarchical namespace have. An object is created with ``If-None-Match: *``; parts of a large one are invisible until its list
of blocks is committed, so every write is atomic.
"""

from __future__ import annotations

import builtins
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import requests
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import CredentialUnavailableError, DefaultAzureCredential
from azure.storage.blob import BlobBlock, BlobClient, BlobPrefix, BlobProperties, ContainerClient
from requests.adapters import HTTPAdapter

from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage import cloud_errors
from statefulspark.storage.base import ObjectInfo
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.conditional import create_once
from statefulspark.storage.hashes import HashAlgorithm
from statefulspark.storage.keys import check_folder, check_key, check_prefix
from statefulspark.storage.limits import StoreLimits
from statefulspark.storage.per_process import PerProcess
from statefulspark.storage.s3.errors import is_untrusted
from statefulspark.storage.storage_settings import FIELD, StorageSettings
from statefulspark.storage.transfers import cancelable_file, download, each

KEY_VARIABLE = "AZURE_STORAGE_KEY"
"""Environment variable with an account key (the name that Azure's command line uses)."""

SAS_VARIABLE = "AZURE_STORAGE_SAS_TOKEN"
"""Environment variable with a shared access signature."""

_RIGHTS = "the role Storage Blob Data Contributor on the container"
_CREDENTIALS_REMEDY = f"Run with a workload or managed identity, or set {KEY_VARIABLE}, {SAS_VARIABLE}, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
_FOLDER_MARK = "hdi_isfolder"
"""Metadata of what shows a folder of a hierarchical namespace in lists of blobs."""

_API_VERSION = "2023-11-03"
"""Of the service; the client's own default is newer than what emulators and private clouds answer."""

_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_ATTEMPTS_MORE = 2
_COPY_POLL_S = 0.2


class AzureStore:
    """An ObjectStore in a container, below a prefix. Thread-safe; picklable (connects again where it is unpickled).

    Args:
        host: Host of the account as the URL names it, e.g. ``account.dfs.core.windows.net``.
        container: Name of an existing container.
        prefix: Relative path without a slash at its ends; empty for the whole container.
        settings: Endpoint and authorities to trust; credentials come from the environment.
        limits: Time and size bounds.
    """

    def __init__(
        self, host: str, container: str, prefix: str = "", settings: StorageSettings | None = None, *, limits: StoreLimits | None = None
    ) -> None:
        self._host, self._container_name = host, container
        self._prefix = f"{check_key(prefix, field='checkpointing.dir')}/" if prefix else ""
        self._limits = limits or StoreLimits()
        self._connected = PerProcess(partial(_connect, host, container, settings or StorageSettings(), self._limits))

    @property
    def url(self) -> str:
        """``abfss://container@account.dfs.core.windows.net/prefix``."""
        return f"abfss://{self._container_name}@{self._host}/{self._prefix}".rstrip("/")

    def __repr__(self) -> str:
        """Name the place, never the credentials."""
        return f"AzureStore({self.url!r})"

    def put(self, key: str, data: bytes) -> None:
        """Write or replace."""
        with self._translated("write", key, absent=False):
            self._blob(key).upload_blob(data, overwrite=True, validate_content=True)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Create; ConflictError when the key exists with other bytes."""
        create_once(key, data, url=self.url, create=partial(self._create, key, data), read=self.get)

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        """Upload a local file (in parts when large); FileNotFoundError when there is none."""
        blob = self._blob(key)
        with cancelable_file(path, cancellation) as stream:
            if path.stat().st_size < self._limits.part_bytes:
                self.put(key, stream.read())
                return
            blocks: builtins.list[BlobBlock] = []
            upload = uuid.uuid4().hex
            while part := stream.read(self._limits.part_bytes):
                # Names of one length each, as the service demands, and of this upload only: two writers must not mix their parts.
                blocks.append(BlobBlock(block_id=f"{upload}{len(blocks):08d}"))
                with self._translated("upload", key, absent=False):
                    blob.stage_block(blocks[-1].id, part, length=len(part), validate_content=True)
            with self._translated("upload", key, absent=False):
                blob.commit_block_list(blocks)

    def get(self, key: str) -> bytes:
        """Read whole; KeyError when absent."""
        blob = self._blob(key)
        with self._translated("read", key):
            found = blob.download_blob()
            _check_object(key, found.properties)
            return found.readall()

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> None:
        """Download to ``path`` (folders are made); KeyError when absent."""
        del algorithm  # the service's client writes the file by itself
        blob = self._blob(key)

        def fetch(stream: BinaryIO) -> None:
            with self._translated("download", key):
                found = blob.download_blob()
                _check_object(key, found.properties)
                found.readinto(stream)

        download(path, fetch)

    def head(self, key: str) -> ObjectInfo | None:
        """Info or None."""
        blob = self._blob(key)
        try:
            with self._translated("look up", key):
                found = blob.get_blob_properties()
                _check_object(key, found)
        except KeyError:
            return None
        return _info(key, found)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """All objects whose key starts with ``prefix``, sorted by key."""
        start = self._prefix + check_prefix(prefix)
        with self._translated("list", prefix, absent=False):
            blobs = self._container().list_blobs(name_starts_with=start, include=["metadata"], results_per_page=self._limits.page_objects)
            found = [_info(blob.name.removeprefix(self._prefix), blob) for blob in blobs if not _is_folder(blob)]
        # Tools make objects called "folder/" to show a folder; they are no keys of ours.
        return sorted((info for info in found if info.key and not info.key.endswith("/")), key=lambda info: info.key)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Names directly below ``prefix`` that have objects under them, sorted.

        An account with a hierarchical namespace keeps folders without objects; those are looked into, one request each.
        """
        start = self._prefix + check_folder(prefix)
        with self._translated("list", prefix, absent=False):
            found = [
                each.name
                for each in self._container().walk_blobs(name_starts_with=start, results_per_page=self._limits.page_objects)
                if isinstance(each, BlobPrefix)
            ]
            return sorted(name.removeprefix(start).rstrip("/") for name in found if self._holds_objects(name))

    def copy(self, source: str, target: str) -> None:
        """Copy within the account; KeyError when ``source`` is absent."""
        origin, blob = self._blob(source), self._blob(target)
        if self.head(source) is None:
            raise KeyError(source)
        if source == target:
            return
        deadline_s = time.monotonic() + self._limits.copy_timeout_s
        with self._translated("copy", source):
            # Within one account the service copies while the request waits; a pending copy is one that it has put off.
            status = str(blob.start_copy_from_url(origin.url)["copy_status"])
            while status == "pending":
                if time.monotonic() > deadline_s:
                    raise UnavailableError(f"{self.url}/{target}: the copy did not end within {self._limits.copy_timeout_s:.0f} s")
                time.sleep(_COPY_POLL_S)
                status = str(blob.get_blob_properties().copy.status)
        if status != "success":
            raise UnavailableError(f"{self.url}/{target}: the copy ended with status {status}")

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; absent keys are fine."""
        each(self._delete, [(key, self._blob(key)) for key in keys], self._limits.at_once)

    def _create(self, key: str, data: bytes) -> None:
        with self._translated("create", key, absent=False):
            self._blob(key).upload_blob(data, overwrite=False, validate_content=True)

    def _delete(self, named: tuple[str, BlobClient]) -> None:
        key, blob = named
        try:
            with self._translated("delete", key):
                blob.delete_blob()
        except KeyError:
            return

    def _holds_objects(self, folder: str) -> bool:
        blobs = self._container().list_blobs(name_starts_with=folder, include=["metadata"], results_per_page=100)
        return any(not _is_folder(blob) for blob in blobs)

    def _container(self) -> ContainerClient:
        with self._translated("connect to", "", absent=False):
            return self._connected.get()

    def _blob(self, key: str) -> BlobClient:
        return self._container().get_blob_client(self._prefix + check_key(key))

    @contextmanager
    def _translated(self, operation: str, key: str, *, absent: bool = True) -> Iterator[None]:
        """Turn the client's errors into ours; ``absent``: whether "not found" may say so of the object."""
        try:
            yield
        except AzureError as exc:
            failure = _translate(exc, url=f"{self.url}/{key}", operation=operation)
            if failure is not None:
                raise failure from exc
            if absent:
                raise KeyError(key) from exc
            raise cloud_errors.of_status(404, code="", url=f"{self.url}/{key}", operation=operation, rights=_RIGHTS) from exc


def _translate(exc: AzureError, *, url: str, operation: str) -> StatefulSparkError | None:
    """Our error for ``exc``, which ended ``operation`` on ``url``; None if the object is absent."""
    if isinstance(exc, HttpResponseError) and exc.status_code is not None:
        raw = getattr(exc, "error_code", None) or ""
        code = str(getattr(raw, "value", raw))
        if exc.status_code == 404 and code not in {"ContainerNotFound", "ContainerBeingDeleted", "AccountNotFound"}:
            return None
        if operation == "create" and code in {"BlobAlreadyExists", "ConditionNotMet"}:
            return ConflictError(f"{url} exists")
        if code == "InvalidBlockList":
            return UnavailableError(f"{url}: another upload of this object ended first ({code})")
        return cloud_errors.of_status(exc.status_code, code=code, url=url, operation=operation, rights=_RIGHTS)
    if isinstance(exc, CredentialUnavailableError | ClientAuthenticationError):
        return cloud_errors.no_credentials(url, exc, _CREDENTIALS_REMEDY)
    if is_untrusted(exc):
        return cloud_errors.untrusted(url)
    return cloud_errors.unreachable(url, operation, exc)


def _is_folder(blob: BlobProperties) -> bool:
    return str((blob.metadata or {}).get(_FOLDER_MARK, "")).lower() == "true"


def _check_object(key: str, found: BlobProperties) -> None:
    if _is_folder(found):
        raise KeyError(key)


def _info(key: str, blob: BlobProperties) -> ObjectInfo:
    return ObjectInfo(key=key, size_bytes=int(blob.size), modified_s=blob.last_modified.timestamp())


def _connect(host: str, container: str, settings: StorageSettings, limits: StoreLimits) -> ContainerClient:
    account, _, rest = host.partition(".")
    credential = _credential(account, settings.endpoint)
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=limits.connections))
    # The client passes these on only to a transport that it makes itself.
    transport = RequestsTransport(
        session=session,
        session_owner=False,
        connection_timeout=limits.connect_timeout_s,
        read_timeout=limits.read_timeout_s,
        connection_verify=settings.ca_bundle or True,
    )
    try:
        return ContainerClient(
            settings.endpoint or f"https://{account}.{rest.replace('dfs.', 'blob.', 1)}",
            container,
            credential=credential,
            api_version=_API_VERSION,
            transport=transport,
            retry_total=_ATTEMPTS_MORE,
            initial_backoff=0,
            increment_base=1,
            random_jitter_range=1,
            # A redirect would send data, and a name of ours, to a place that nobody named.
            permit_redirects=False,
        )
    except ValueError as exc:
        remedy = "Correct the endpoint, the container's name and the account key"
        raise InvalidInputError(f"cannot create a client of Azure Storage ({type(exc).__name__})", field=FIELD, remedy=remedy) from exc


def _credential(account: str, endpoint: str | None) -> Any:
    """``Any``: the client takes several unrelated types."""
    if key := os.environ.get(KEY_VARIABLE):
        return AzureNamedKeyCredential(account, key)
    if token := os.environ.get(SAS_VARIABLE):
        if endpoint is not None and endpoint.startswith("http://") and urlsplit(endpoint).hostname not in _HERE:
            # The token is all that a reader of the traffic needs; a key only signs requests, and the client itself sends no other token.
            raise InvalidInputError(
                f"the shared access signature in {SAS_VARIABLE} would travel in the clear", field=f"{FIELD}.endpoint", remedy="Use https://"
            )
        # As text, not as an object: so the URL of a copy's source has it too.
        return token.removeprefix("?")
    return DefaultAzureCredential(exclude_interactive_browser_credential=True)
