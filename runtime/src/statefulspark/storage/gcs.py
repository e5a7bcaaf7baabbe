"""GcsStore: objects in a bucket of Google Cloud Storage (``gs://``). The only module that imports Google's client.

Google's own client because it speaks the JSON API, which the service documents and emulators answer, and knows every identity of Google Cloud.
An object is created with ``ifGenerationMatch=0``. Google keeps the old object until an upload is complete, so every write is atomic.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import google.auth
import requests
from google.api_core.exceptions import GoogleAPICallError, NotFound, PreconditionFailed, RetryError
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY
from google.oauth2 import service_account
from requests.adapters import HTTPAdapter

from statefulspark.errors import ConflictError, CorruptDataError, InvalidInputError
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

KEY_VARIABLE = "GOOGLE_CREDENTIALS"
"""Environment variable with the JSON key of a service account, for pods that get it from a Secret; without it Google's default places."""

_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_RIGHTS = "the role Storage Object User on the bucket"
_CREDENTIALS_REMEDY = (
    f"Run with a service account of Google Cloud (workload identity), or set GOOGLE_APPLICATION_CREDENTIALS to the path of a key, or {KEY_VARIABLE} to a"
    " service account's JSON key"
)


# Google's client would ask for the bucket's location in a thread of its own, for traces that nobody collects.
os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")


class GcsStore:
    """An ObjectStore in a bucket, below a prefix. Thread-safe; picklable (connects again where it is unpickled).

    Args:
        bucket: Name of an existing bucket.
        prefix: Relative path without a slash at its ends; empty for the whole bucket.
        settings: Endpoint and authorities to trust; credentials come from the environment.
        limits: Time and size bounds.
    """

    def __init__(
        self, bucket: str, prefix: str = "", settings: StorageSettings | None = None, *, limits: StoreLimits | None = None
    ) -> None:
        self._bucket_name = bucket
        self._prefix = f"{check_key(prefix, field='checkpointing.dir')}/" if prefix else ""
        self._limits = limits or StoreLimits()
        self._connected = PerProcess(partial(_connect, settings or StorageSettings(), self._limits))
        self._once = {"retry": None, "timeout": (self._limits.connect_timeout_s, self._limits.read_timeout_s)}
        self._paged = self._once | {"page_size": self._limits.page_objects}
        # Parts of large files are repeated by the client, which goes on where it was; RetryingStore repeats everything else.
        self._in_parts = self._once | {"retry": DEFAULT_RETRY.with_timeout(self._limits.read_timeout_s)}

    @property
    def url(self) -> str:
        """``gs://bucket/prefix``."""
        return f"gs://{self._bucket_name}/{self._prefix}".rstrip("/")

    def __repr__(self) -> str:
        """Name the place, never the credentials."""
        return f"GcsStore({self.url!r})"

    def put(self, key: str, data: bytes) -> None:
        """Write or replace."""
        name = self._name(key)
        with self._translated("write", key, absent=False):
            self._blob(name).upload_from_string(data, checksum="crc32c", **self._once)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Create; ConflictError when the key exists with other bytes."""
        create_once(key, data, url=self.url, create=partial(self._create, key, data), read=self.get)

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        """Upload a local file (in parts when large); FileNotFoundError when there is none."""
        name = self._name(key)
        with cancelable_file(path, cancellation) as stream:
            size = path.stat().st_size
            if size < self._limits.part_bytes:
                self.put(key, stream.read())
                return
            with self._translated("upload", key, absent=False):
                blob = self._blob(name, chunk_size=self._limits.part_bytes)
                blob.upload_from_file(stream, size=size, checksum="crc32c", **self._in_parts)

    def get(self, key: str) -> bytes:
        """Read whole; KeyError when absent."""
        name = self._name(key)
        with self._translated("read", key):
            return bytes(self._blob(name).download_as_bytes(checksum="crc32c", **self._once))

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> None:
        """Download to ``path`` (folders are made); KeyError when absent."""
        del algorithm  # the service's client writes the file by itself
        name = self._name(key)

        def fetch(stream: Any) -> None:
            with self._translated("download", key):
                self._blob(name).download_to_file(stream, checksum="crc32c", **self._in_parts)

        download(path, fetch)

    def head(self, key: str) -> ObjectInfo | None:
        """Info or None. A missing bucket looks like a missing object here."""
        name = self._name(key)
        with self._translated("look up", key):
            found = self._bucket().get_blob(name, **self._once)
        return None if found is None else _info(key, found)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """All objects whose key starts with ``prefix``, sorted by key."""
        start = self._prefix + check_prefix(prefix)
        with self._translated("list", prefix, absent=False):
            blobs = self._bucket().list_blobs(prefix=start, fields="items(name,size,updated),nextPageToken", **self._paged)
            found = [_info(blob.name.removeprefix(self._prefix), blob) for blob in blobs]
        # Consoles make objects called "folder/" to show a folder; they are no keys of ours.
        return sorted((info for info in found if info.key and not info.key.endswith("/")), key=lambda info: info.key)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Names directly below ``prefix`` that have objects under them, sorted."""
        start = self._prefix + check_folder(prefix)
        names: set[str] = set()
        with self._translated("list", prefix, absent=False):
            blobs = self._bucket().list_blobs(prefix=start, delimiter="/", fields="prefixes,nextPageToken", **self._paged)
            for page in blobs.pages:
                names.update(each.removeprefix(start).rstrip("/") for each in page.prefixes)
        return sorted(names)

    def copy(self, source: str, target: str) -> None:
        """Server-side copy (in steps when large); KeyError when ``source`` is absent."""
        origin, name = self._blob(self._name(source)), self._blob(self._name(target))
        if source == target:
            if self.head(source) is None:
                raise KeyError(source)
            return
        with self._translated("copy", source):
            token, _, _ = name.rewrite(origin, **self._once)
            while token is not None:
                token, _, _ = name.rewrite(origin, token=token, **self._once)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; absent keys are fine."""
        each(self._delete, [(key, self._name(key)) for key in keys], self._limits.at_once)

    def _create(self, key: str, data: bytes) -> None:
        name = self._name(key)
        with self._translated("create", key, absent=False):
            self._blob(name).upload_from_string(data, checksum="crc32c", if_generation_match=0, **self._once)

    def _delete(self, named: tuple[str, str]) -> None:
        key, name = named
        try:
            with self._translated("delete", key):
                self._blob(name).delete(**self._once)
        except KeyError:
            return

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _bucket(self) -> Any:
        """``Any`` because Google's client has no types."""
        return self._connected.get().bucket(self._bucket_name)

    def _blob(self, name: str, chunk_size: int | None = None) -> Any:
        return self._bucket().blob(name, chunk_size=chunk_size)

    @contextmanager
    def _translated(self, operation: str, key: str, *, absent: bool = True) -> Iterator[None]:
        """Turn the client's errors into ours; ``absent``: whether "not found" says so of the object, not of the bucket."""
        url = f"{self.url}/{key}"
        try:
            yield
        except NotFound as exc:
            if absent:
                raise KeyError(key) from exc
            raise cloud_errors.of_status(404, code="notFound", url=url, operation=operation, rights=_RIGHTS) from exc
        except PreconditionFailed as exc:
            raise ConflictError(f"{key} exists in {self.url}") from exc
        except GoogleAPICallError as exc:
            raise cloud_errors.of_status(int(exc.code or 0), code="", url=url, operation=operation, rights=_RIGHTS) from exc
        except InvalidResponse as exc:
            raise cloud_errors.of_status(int(exc.response.status_code), code="", url=url, operation=operation, rights=_RIGHTS) from exc
        except DataCorruption as exc:
            raise CorruptDataError("the data read does not match the checksum stored by the service", path=url) from exc
        except requests.TooManyRedirects as exc:
            raise cloud_errors.of_status(302, code="redirect", url=url, operation=operation, rights=_RIGHTS) from exc
        except (requests.RequestException, RetryError, ConnectionError, auth.TransportError) as exc:
            if is_untrusted(exc):
                raise cloud_errors.untrusted(url) from exc
            raise cloud_errors.unreachable(url, operation, exc) from exc
        except auth.GoogleAuthError as exc:
            if exc.retryable:
                raise cloud_errors.unreachable(url, operation, exc) from exc
            raise cloud_errors.no_credentials(url, exc, _CREDENTIALS_REMEDY) from exc


def _info(key: str, blob: Any) -> ObjectInfo:
    return ObjectInfo(key=key, size_bytes=int(blob.size), modified_s=blob.updated.timestamp())


def _connect(settings: StorageSettings, limits: StoreLimits) -> Any:
    credentials = _credentials(settings)
    session = AuthorizedSession(credentials)
    # A redirect would send data, and a name of ours, to a place that nobody named.
    session.max_redirects = 0
    if settings.ca_bundle is not None:
        session.verify = settings.ca_bundle
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=limits.connections))
    options = {"api_endpoint": settings.endpoint} if settings.endpoint is not None else None
    # The project matters only to who makes buckets.
    return storage.Client(project="statefulspark", credentials=credentials, _http=session, client_options=options)


def _credentials(settings: StorageSettings) -> Any:
    if settings.endpoint is not None and settings.endpoint.startswith("http://"):
        # An emulator: a token must not travel in the clear.
        return AnonymousCredentials()
    key = os.environ.get(KEY_VARIABLE)
    if key:
        try:
            return service_account.Credentials.from_service_account_info(json.loads(key), scopes=_SCOPES)
        except (ValueError, auth.GoogleAuthError):
            # Without the cause, which may repeat parts of the key.
            raise InvalidInputError(
                f"{KEY_VARIABLE} is not a service account's JSON key", field=FIELD, remedy=_CREDENTIALS_REMEDY
            ) from None
    credentials, _ = google.auth.default(scopes=_SCOPES)
    return credentials
