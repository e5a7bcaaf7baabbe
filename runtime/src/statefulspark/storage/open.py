"""Opens a store from the URL in the manifest.

The result is a stack: RetryingStore on top of LocalStore, S3Store or another one, with FaultyStore between the two in tests.
"""

from __future__ import annotations

import os
import urllib.parse
from importlib.util import find_spec
from pathlib import Path

from statefulspark.config.values.locations import EXAMPLES, suggestion
from statefulspark.errors import ConflictError, InvalidInputError, UnavailableError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.keys import probe_key
from statefulspark.storage.local.store import LocalStore
from statefulspark.storage.remote import OPENERS
from statefulspark.storage.retrying import RetryingStore
from statefulspark.storage.storage_settings import StorageSettings

__all__ = ["StorageSettings", "check_reachable", "open_store"]

_FIELD = "checkpointing.dir"
_FAULTS = "STATEFULSPARK_STORAGE_FAULTS"
_PROBE_BUDGET_S = 10.0
"""A job that cannot reach its storage says so after this time (and one attempt), not after a batch's patience."""


def open_store(url: str, settings: StorageSettings | None = None) -> ObjectStore:
    """Open the store at ``url``; nothing is contacted yet.

    Args:
        url: ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``,
            ``hdfs://namenode:8020/folder``,
            ``file:///folder`` (percent-encoded), or a plain path (relative ones are taken from the working directory of this process).
        settings: Settings of the service; ignored for file://.

    Returns:
        A thread-safe, picklable store that repeats what fails for a moment. The environment variable
        ``STATEFULSPARK_STORAGE_FAULTS`` (a test hook, see faults/storage.py) makes it fail on purpose below that; images have no such hooks.

    Raises:
        InvalidInputError: The URL names no store.
    """
    inner = _open(url, settings)
    return RetryingStore(_with_faults(inner))


def _with_faults(store: ObjectStore) -> ObjectStore:
    wanted = os.environ.get(_FAULTS)
    if not wanted or find_spec("statefulspark.faults") is None:
        return store
    from statefulspark.faults.storage import FaultyStore, parse_fault_plan  # noqa: PLC0415  images do not have it

    return FaultyStore(store, parse_fault_plan(wanted))


def check_reachable(store: ObjectStore) -> None:
    """Prove with one small object that ``store`` can be written, read, listed and deleted, and creates objects exactly once.

    The object is called ``_probe-<random>`` and is gone afterwards.

    Raises:
        InvalidInputError: Credentials, place or rights are wrong, or the service does not honour conditional writes.
        UnavailableError: It does not answer within some 10 seconds plus one attempt.
    """
    if isinstance(store, RetryingStore):
        store = store.within(_PROBE_BUDGET_S)
    key = probe_key()
    content = key.encode()
    store.put_if_absent(key, content)
    try:
        if store.get(key) != content or [info.key for info in store.list(key)] != [key]:
            raise UnavailableError(f"{_FIELD}: {store.url} does not return the object that was just written")
        if _creates_twice(store, key):
            message = f"{store.url} lets a conditional write replace an object"
            remedy = "Use a service that honours conditional writes, such as AWS S3 or MinIO; two drivers could corrupt the job otherwise"
            raise InvalidInputError(message, field=_FIELD, remedy=remedy)
    except KeyError as exc:
        raise UnavailableError(f"{_FIELD}: {store.url} does not list the object that was just written") from exc
    finally:
        store.delete([key])


def _creates_twice(store: ObjectStore, key: str) -> bool:
    try:
        store.put_if_absent(key, b"another writer")
    except ConflictError:
        return False
    return True


def _open(url: str, settings: StorageSettings | None) -> ObjectStore:
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme:
        if not url:
            raise InvalidInputError("is empty", field=_FIELD, remedy=f"Give {EXAMPLES} or a path")
        return LocalStore(Path(url).expanduser().absolute())
    if scheme == "file":
        return LocalStore(_local_path(rest))
    if scheme == "s3":
        bucket, prefix = _bucket_and_prefix(rest)
        # Imported here (hence the noqa): boto3 takes long to load, and a job on file:// has no use for it.
        from statefulspark.storage.s3.store import S3Store  # noqa: PLC0415

        return S3Store(bucket, prefix, settings)
    if scheme in OPENERS:
        if not rest.startswith("//"):
            raise InvalidInputError("has no slashes after the scheme", field=_FIELD, remedy=f"Write {scheme}://")
        return OPENERS[scheme](rest[2:], settings)
    remedy = suggestion(scheme) or f"Give {EXAMPLES} or a path"
    raise InvalidInputError(f"unknown scheme {scheme!r}", field=_FIELD, remedy=remedy)


def _local_path(rest: str) -> Path:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in {"", "localhost"}:
            message = f"'file://{host}/...' would be a folder on the host {host!r}"
            raise InvalidInputError(message, field=_FIELD, remedy="Write three slashes: file:///folder")
        rest = slash + path
    if "?" in rest or "#" in rest:
        raise InvalidInputError("contains '?' or '#'", field=_FIELD, remedy="Write them as %3F and %23")
    folder = Path(urllib.parse.unquote(rest))
    if not folder.is_absolute():
        raise InvalidInputError("is not absolute", field=_FIELD, remedy="Write file:///folder with an absolute path")
    return folder


def _bucket_and_prefix(rest: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        raise InvalidInputError("has no slashes after the scheme", field=_FIELD, remedy="Write s3://bucket/prefix")
    bucket, _, prefix = rest[2:].partition("/")
    if "@" in bucket or ":" in bucket:
        # The text does not repeat the URL: it may hold a secret.
        remedy = "Write s3://bucket/prefix and give endpoint and credentials under checkpointing.storage"
        raise InvalidInputError("must contain only bucket and prefix", field=_FIELD, remedy=remedy)
    if not bucket:
        raise InvalidInputError("contains no bucket", field=_FIELD, remedy="Write s3://bucket/prefix")
    return bucket, prefix.strip("/")
