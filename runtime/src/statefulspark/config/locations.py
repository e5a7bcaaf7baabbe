"""Where things are stored: ``file:///...`` and ``s3://bucket/prefix``."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, StringConstraints

from statefulspark.config.problems import refused

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def _check_storage_url(url: str) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise refused("must not contain credentials", "Give them under storage")
    if parts.query or parts.fragment:
        raise refused("must not have a query or a fragment", "Remove what follows ? or #")
    if ".." in unquote(parts.path).split("/"):
        raise refused("must not contain ..", "Write the path without ..")
    match parts.scheme:
        case "file":
            if parts.netloc or not parts.path.startswith("/"):
                raise refused("is not an absolute path", "Write file:/// and the absolute path")
        case "s3":
            if not _BUCKET.fullmatch(parts.netloc):
                raise refused("names no valid bucket", "Write s3://bucket/prefix")
        case "s3a" | "s3n":
            raise refused("uses a scheme of Hadoop, which is not needed here", "Write s3:// instead")
        case _:
            raise refused("is not a storage URL", "Write file:///path or s3://bucket/prefix")
    return url.rstrip("/") if parts.path.strip("/") else url


def check_mounted(url: str) -> str:
    """Return ``url`` when it is a folder in the file system.

    Raises:
        PydanticCustomError: It is in a store that is not mounted.
    """
    if urlsplit(url).scheme != "file":
        raise refused(
            "is not a mounted folder: the driver carries Spark's files from there to checkpoints and savepoints, and reads them as files",
            "Write file:/// and the path of a volume that driver and executors mount",
        )
    return url


def check_endpoint(url: str) -> str:
    """Return ``url`` when it can be the base of a web service; refuse credentials in it.

    Raises:
        PydanticCustomError: Not an http(s) URL, or it carries credentials.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise refused("is not an http(s) URL", "Give the full URL, for example http://minio:9000")
    if "@" in parts.netloc:
        raise refused("must not contain credentials", "Set accessKeyId and secretAccessKey")
    return url


StorageUrl = Annotated[
    str,
    StringConstraints(max_length=1024, pattern=r"^[a-z0-9]+://"),
    AfterValidator(_check_storage_url),
]
"""A folder in storage, without a slash at its end."""
