"""Opens gs://, abfss:// and hdfs:// by the rest of their URLs. Their clients are imported at the first use: they take long to load and are optional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from statefulspark.config.values.locations import AZURE_PLACE, AZURE_REMEDY, HDFS_PLACE, HDFS_REMEDY
from statefulspark.errors import InvalidInputError
from statefulspark.storage import cloud_errors
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.storage_settings import StorageSettings

_FIELD = "checkpointing.dir"

Opener = Callable[[str, StorageSettings | None], ObjectStore]


def _open_gcs(rest: str, settings: StorageSettings | None) -> ObjectStore:
    bucket, _, prefix = rest.partition("/")
    if not bucket or "@" in bucket or ":" in bucket:
        # The text does not repeat the URL: it may hold a secret.
        raise InvalidInputError("must contain only bucket and prefix", field=_FIELD, remedy="Write gs://bucket/prefix")
    try:
        from statefulspark.storage.gcs import GcsStore  # noqa: PLC0415  see above
    except ModuleNotFoundError as exc:
        raise cloud_errors.missing_library("gs", "gcs") from exc
    return GcsStore(bucket, prefix.strip("/"), settings)


def _open_azure(rest: str, settings: StorageSettings | None) -> ObjectStore:
    place, _, prefix = rest.partition("/")
    found = AZURE_PLACE.fullmatch(place)
    if found is None:
        raise InvalidInputError("names no container of an account", field=_FIELD, remedy=AZURE_REMEDY)
    try:
        from statefulspark.storage.azure import AzureStore  # noqa: PLC0415  see above
    except ModuleNotFoundError as exc:
        raise cloud_errors.missing_library("abfss", "azure") from exc
    return AzureStore(found["host"], found["container"], prefix.strip("/"), settings)


def _open_hdfs(rest: str, _settings: StorageSettings | None) -> ObjectStore:
    authority, _, folder = rest.partition("/")
    if not HDFS_PLACE.fullmatch(authority):
        raise InvalidInputError("names no NameNode or name service", field=_FIELD, remedy=HDFS_REMEDY)
    try:
        from statefulspark.storage.hdfs.store import HdfsStore  # noqa: PLC0415  see above
    except ModuleNotFoundError as exc:
        raise cloud_errors.missing_library("hdfs", "hdfs") from exc
    return HdfsStore(authority, folder.strip("/"))


OPENERS: Final[dict[str, Opener]] = {"gs": _open_gcs, "abfss": _open_azure, "hdfs": _open_hdfs}
"""Scheme -> what opens the store whose URL goes on so after ``scheme://``."""
