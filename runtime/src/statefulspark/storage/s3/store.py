"""S3Store: objects in a bucket of AWS S3 or a compatible service.

Exactly-once depends on conditional writes, and S3 makes them subtle: the service may store the object while
the response is lost; the client's own retry then fails with "already exists". `create_once` decides what happened.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boto3.s3.transfer import TransferConfig, create_transfer_manager
from botocore import exceptions as boto
from s3transfer.exceptions import RetriesExceededError

from statefulspark.errors import ConflictError, CorruptDataError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.base import ObjectInfo
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.conditional import create_once
from statefulspark.storage.hashes import HashAlgorithm
from statefulspark.storage.keys import check_folder, check_key, check_prefix
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.per_process import PerProcess
from statefulspark.storage.s3 import errors as s3_errors
from statefulspark.storage.s3.client import connect
from statefulspark.storage.s3.credentials import REFUSALS
from statefulspark.storage.s3.downloads import Download
from statefulspark.storage.s3.objects import S3Encryption
from statefulspark.storage.s3.permissions import remedy_for
from statefulspark.storage.storage_settings import FIELD, StorageSettings
from statefulspark.storage.transfers import download

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, HeadObjectOutputTypeDef

_DELETE_BATCH = 1000
"""The most keys that one DeleteObjects request takes."""

_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
    boto.NoAuthTokenError,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
    boto.SSOTokenLoadError,
)
_MISCONFIGURED = (boto.BaseEndpointResolverError, boto.ValidationError, boto.ParamValidationError)


class S3Store:
    """An ObjectStore in a bucket, below a prefix. Thread-safe; picklable (connects again where it is unpickled).

    Args:
        bucket: Name of an existing bucket.
        prefix: Relative path without a slash at its ends; empty for the whole bucket.
        settings: Endpoint and credentials.
        limits: Time and size bounds.
    """

    def __init__(self, bucket: str, prefix: str = "", settings: StorageSettings | None = None, *, limits: S3Limits | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{check_key(prefix, field='checkpointing.dir')}/" if prefix else ""
        self._settings = settings or StorageSettings()
        self._limits = limits or S3Limits()
        self._connect_anew()

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def __repr__(self) -> str:
        """Name the place, never the credentials."""
        return f"S3Store({self.url!r}, endpoint={self._settings.endpoint!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the connection."""
        return {"bucket": self._bucket, "prefix": self._prefix, "settings": self._settings, "limits": self._limits}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore; the connection is made at the first use."""
        self._bucket, self._prefix = state["bucket"], state["prefix"]
        self._settings, self._limits = state["settings"], state["limits"]
        self._connect_anew()

    def put(self, key: str, data: bytes) -> None:
        """Write or replace."""
        name = self._name(key)
        with self._translated("write", key):
            self._client().put_object(Bucket=self._bucket, Key=name, Body=data, **self._settings.s3.checked(data))

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Create; ConflictError when the key exists with other bytes."""
        create_once(key, data, url=self.url, create=lambda: self._create(key, data), read=self.get)

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        """Upload a local file (in parts when large); FileNotFoundError when there is none.

        A canceled upload ends within a part, and aborts the multipart upload. Files of one part are uploaded to their end.

        A process killed meanwhile leaves invisible parts that cost money: give the bucket a lifecycle rule that aborts
        incomplete multipart uploads after a day.
        """
        name = self._name(key)
        given = cancellation if cancellation is not None else Cancellation("the upload was canceled")
        given.check()
        if path.stat().st_size < self._limits.part_bytes:
            self.put(key, path.read_bytes())
            return
        with self._translated("upload", key), self._transfers(self._limits.part_bytes) as manager:
            transfer = manager.upload(str(path), self._bucket, name, extra_args=self._settings.s3.transfer())
            try:
                with given.stopped_by(transfer.cancel):
                    transfer.result()
            except CancelledError:
                given.check()
                raise

    def get(self, key: str) -> bytes:
        """Read whole; KeyError when absent."""
        name = self._name(key)
        with self._translated("read", key):
            return self._client().get_object(Bucket=self._bucket, Key=name)["Body"].read()

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> str | None:
        """Download to ``path`` (folders are made); return its hash, None for a large object. KeyError when absent."""
        found = Download(self._client(), self._bucket, self._name(key), f"{self.url}/{key}", self._limits.attempts)
        with self._translated("download", key):
            return download(path, lambda stream: found.into(stream, algorithm))

    def head(self, key: str) -> ObjectInfo | None:
        """Info or None. A missing bucket looks like a missing object here: S3 answers both without a body."""
        name = self._name(key)
        try:
            with self._translated("look up", key):
                found = self._looked_up(name)
        except KeyError:
            return None
        return ObjectInfo(key=key, size_bytes=found["ContentLength"], modified_s=found["LastModified"].timestamp())

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """All objects whose key starts with ``prefix``, sorted by key."""
        found = []
        start = self._prefix + check_prefix(prefix)
        with self._translated("list", prefix):
            for page in self._client().get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=start):
                for item in page.get("Contents", []):
                    key = item["Key"].removeprefix(self._prefix)
                    # Consoles make objects called "folder/" to show a folder; they are no keys of ours.
                    if not key.endswith("/") and key:
                        found.append(ObjectInfo(key=key, size_bytes=item["Size"], modified_s=item["LastModified"].timestamp()))
        return sorted(found, key=lambda info: info.key)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Names directly below ``prefix`` that have objects under them, sorted."""
        start = self._prefix + check_folder(prefix)
        with self._translated("list", prefix):
            pages = self._client().get_paginator("list_objects_v2")
            found = [
                item["Prefix"].removeprefix(start).rstrip("/")
                for page in pages.paginate(Bucket=self._bucket, Prefix=start, Delimiter="/")
                for item in page.get("CommonPrefixes", [])
            ]
        return sorted(found)

    def copy(self, source: str, target: str) -> None:
        """Server-side copy (in parts when large); KeyError when ``source`` is absent."""
        origin = {"Bucket": self._bucket, "Key": self._name(source)}
        name = self._name(target)
        if source == target:
            # S3 refuses to copy an object onto itself.
            if self.head(source) is None:
                raise KeyError(source)
            return
        with self._translated("copy", source), self._transfers(self._limits.copy_part_bytes) as manager:
            # Tags come from the settings, as for any other object, and not from the source. No checksum is asked for: nothing is sent, and
            # services take over the source's, or (Versity Gateway 1.8) answer for parts with one that they then refuse.
            manager.copy(origin, self._bucket, name, extra_args={"TaggingDirective": "REPLACE"}).result()

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; absent keys are fine."""
        names = [self._name(key) for key in keys]
        for start in range(0, len(names), _DELETE_BATCH):
            batch = names[start : start + _DELETE_BATCH]
            with self._translated("delete", batch[0].removeprefix(self._prefix)):
                answer = self._client().delete_objects(
                    Bucket=self._bucket, Delete={"Objects": [{"Key": name} for name in batch], "Quiet": True}
                )
            for error in answer.get("Errors", []):
                code = error.get("Code", "unknown")
                if code != "NoSuchKey":
                    url = f"s3://{self._bucket}/{error.get('Key', '')}"
                    grant = self._grant("DeleteObjects", error.get("Message", ""))
                    raise s3_errors.translate_code(code, url=url, operation="delete", grant=grant)

    def _looked_up(self, name: str) -> HeadObjectOutputTypeDef | GetObjectOutputTypeDef:
        """The answer to a HEAD has no body, so it does not say why it refuses; that to a GET, which needs the same permission, does."""
        try:
            return self._client().head_object(Bucket=self._bucket, Key=name)
        except boto.ClientError as exc:
            if _code(exc) not in {"400", "401", "403"}:
                raise
        found = self._client().get_object(Bucket=self._bucket, Key=name)
        found["Body"].close()
        return found

    def _create(self, key: str, data: bytes) -> None:
        """Try the conditional write; ConflictError when the object exists, UnavailableError when nobody knows."""
        name = self._name(key)
        try:
            self._client().put_object(Bucket=self._bucket, Key=name, Body=data, IfNoneMatch="*", **self._settings.s3.checked(data))
        except (boto.BotoCoreError, boto.ClientError) as exc:
            if s3_errors.is_lost_condition(_code(exc)):
                raise ConflictError(f"{key} exists in {self.url}") from exc
            raise self._translation(exc, url=f"{self.url}/{key}", operation="create") from exc
        self._served = True

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _connect_anew(self) -> None:
        self._client_of_process = PerProcess(partial(connect, self._settings, self._limits))
        self._served = False
        """True once a request with these credentials was answered with success."""

    def _client(self) -> S3Client:
        return self._client_of_process.get()

    @contextmanager
    def _transfers(self, part_bytes: int) -> Iterator[Any]:
        """A transfer manager; ``Any`` because boto3 does not publish its type."""
        config = TransferConfig(
            multipart_threshold=part_bytes, multipart_chunksize=part_bytes, max_concurrency=4, preferred_transfer_client="classic"
        )
        with create_transfer_manager(self._client(), config) as manager:
            yield manager

    @contextmanager
    def _translated(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except (boto.BotoCoreError, boto.ClientError) as exc:
            if s3_errors.is_absent(_code(exc)):
                raise KeyError(key) from exc
            raise self._translation(exc, url=f"{self.url}/{key}", operation=operation) from exc
        except RetriesExceededError as exc:
            raise UnavailableError(f"{self.url}/{key}: the transfer was repeatedly interrupted") from exc
        else:
            self._served = True

    def _translation(self, exc: Exception, *, url: str, operation: str) -> StatefulSparkError:
        """Our error for ``exc``, which ended ``operation`` on ``url``."""
        code = _code(exc)
        if code in REFUSALS and self._served and self._settings.access_key_id is None:
            # They worked: they have expired or been replaced, and what replaces them is about to come. The caller's patience is the limit.
            return UnavailableError(
                f"{url}: {operation} was refused ({code}): the credentials worked before, and have not been replaced yet"
            )
        if isinstance(exc, _NO_CREDENTIALS):
            self._client_of_process.forget()  # botocore does not look for them twice
        grant = (
            self._grant(exc.operation_name, str(exc.response.get("Error", {}).get("Message", "")))
            if isinstance(exc, boto.ClientError)
            else None
        )
        return _translate(exc, url=url, operation=operation, grant=grant)

    def _grant(self, request: str, message: str) -> str:
        objects = self._settings.s3
        tags = bool(objects.tags) or objects.kind_tag is not None
        kms = objects.encryption is S3Encryption.SSE_KMS
        return remedy_for(request, message, bucket=self._bucket, prefix=self._prefix, tags=tags, kms=kms)


def _code(exc: Exception) -> str:
    """The service's error code; empty when there was no answer."""
    return str(exc.response.get("Error", {}).get("Code", "")) if isinstance(exc, boto.ClientError) else ""


def _translate(exc: Exception, *, url: str, operation: str, grant: str | None) -> StatefulSparkError:
    """Our error for ``exc``, which ended ``operation`` on ``url``; ``grant`` says what a denied request needs."""
    name = type(exc).__name__
    if isinstance(exc, boto.ClientError):
        metadata = exc.response.get("ResponseMetadata", {})
        status, request_id = int(metadata.get("HTTPStatusCode", 0)), str(metadata.get("RequestId", "unknown"))
        return s3_errors.translate_answer(_code(exc), status=status, request_id=request_id, url=url, operation=operation, grant=grant)
    if isinstance(exc, boto.FlexibleChecksumError):
        return CorruptDataError("the data read does not match the checksum stored by the service", path=url)
    if isinstance(exc, boto.SSLError) and s3_errors.is_untrusted(exc):
        remedy = "Give the authority's PEM file as caBundle, or correct the host name"
        return InvalidInputError(f"{url}: the TLS certificate is not trusted", field=f"{FIELD}.endpoint", remedy=remedy)
    if isinstance(exc, _NO_CREDENTIALS):
        remedy = "Give accessKeyId and secretAccessKey, set the AWS_* environment, run with a role, or log in again"
        return InvalidInputError(f"{url}: no usable credentials ({name})", field=FIELD, remedy=remedy)
    if isinstance(exc, _MISCONFIGURED):
        remedy = "Correct the bucket's name, the region and the endpoint"
        return InvalidInputError(f"{url}: cannot {operation} ({name})", field=FIELD, remedy=remedy)
    return UnavailableError(f"{url}: no response to {operation} ({name}). Check that {FIELD}.endpoint is correct and reachable")
