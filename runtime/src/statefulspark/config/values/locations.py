"""Where things are stored: ``file:///...``, ``s3://bucket/prefix`` and the other stores of ``SCHEMES``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import AfterValidator, StringConstraints, TypeAdapter, ValidationError

from statefulspark.config.base import Expected
from statefulspark.config.problems import refused
from statefulspark.config.values.addresses import is_metadata
from statefulspark.errors import InvalidInputError

SCHEMES: Final = ("s3", "gs", "abfss", "hdfs", "file")
"""Of the URLs that name a place in storage."""

EXAMPLES: Final = "s3://bucket/prefix, gs://bucket/prefix, abfss://container@account.dfs.core.windows.net/prefix, hdfs://namenode:8020/folder, file:///folder"
"""A URL of each scheme, for remedies."""

AZURE_PLACE: Final = re.compile(
    r"(?P<container>[a-z0-9](-?[a-z0-9]){2,62})"
    r"@(?P<host>[a-z0-9]{3,24}\.dfs\.core\.(windows\.net|usgovcloudapi\.net|chinacloudapi\.cn))"
)
"""The authority of ``abfss://``. Only Microsoft's own names: the account's credentials go to this host."""

AZURE_REMEDY: Final = "Write abfss://container@account.dfs.core.windows.net/prefix"

HDFS_PLACE: Final = re.compile(r"(?=.{1,253}(:|$))[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:[0-9]{1,5})?")
"""The HDFS authority: a NameNode, or a name service of the Hadoop configuration."""

HDFS_REMEDY: Final = "Write hdfs://namenode:8020/folder, or hdfs://nameservice/folder with HADOOP_CONF_DIR"

_HOST_AND_PORT: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
"""Resolvers take ``%31`` and letters such as ``①`` for digits, so that an address would not be recognized as one."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_GCS_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_INSTEAD = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "abfs": "abfss",
    "wasb": "abfss",
    "wasbs": "abfss",
    "webhdfs": "hdfs",
    "swebhdfs": "hdfs",
}
"""Schemes of other programs for stores that have another name here."""


def suggestion(scheme: str) -> str | None:
    """The remedy for another program's scheme of a store that exists here; None if it is no such scheme."""
    return f"Write {_INSTEAD[scheme]}:// instead" if scheme in _INSTEAD else None


def _check_storage_url(url: str) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc and parts.scheme != "abfss":
        raise refused("must not contain credentials", "Give them under storage")
    if parts.query or parts.fragment:
        raise refused("must not have a query or a fragment", "Remove what follows ? or #")
    if any(ord(each) < 0x20 or ord(each) == 0x7F for each in url + unquote(parts.path)):
        raise refused("contains a control character", "Remove it")
    if ".." in unquote(parts.path).split("/"):
        raise refused("must not contain ..", "Write the path without ..")
    _check_place(parts)
    return url.rstrip("/") if parts.path.strip("/") else url


_PLACES: Final = {
    "s3": (_BUCKET, "names no valid bucket", "Write s3://bucket/prefix"),
    "gs": (_GCS_BUCKET, "names no valid bucket", "Write gs://bucket/prefix"),
    "abfss": (AZURE_PLACE, "names no container of an account", AZURE_REMEDY),
    "hdfs": (HDFS_PLACE, "names no NameNode or name service", HDFS_REMEDY),
}
"""Scheme -> what follows ``scheme://`` up to the next slash, and what is said of anything else."""


def _check_place(parts: SplitResult) -> None:
    if parts.scheme in _PLACES:
        place, problem, remedy = _PLACES[parts.scheme]
        if not place.fullmatch(parts.netloc):
            raise refused(problem, remedy)
        if parts.scheme == "hdfs" and is_metadata(parts.hostname or ""):
            raise refused("names a link-local address or a metadata service", "Write the address of a NameNode")
        if parts.scheme == "hdfs" and ":" in unquote(parts.path):
            raise refused("contains a colon, which HDFS does not allow in names", "Write a path without colons")
    elif parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise refused(
                "is not an absolute path: a relative directory would be another one for each process",
                "Write file:/// and the absolute path",
            )
    elif (remedy_instead := suggestion(parts.scheme)) is not None:
        raise refused("uses a scheme of another program", remedy_instead)
    else:
        raise refused("is not a storage URL", f"Write {EXAMPLES}")


def is_below(url: str, folders: Iterable[str]) -> bool:
    """True if ``url`` is one of ``folders`` or below one. Compared as stores decode it, so ``%2e`` is a dot in ``file://``."""
    place = _plain(url)
    return any(place == folder.rstrip("/") or place.startswith(f"{folder.rstrip('/')}/") for folder in map(_plain, folders))


def _plain(url: str) -> str:
    return unquote(url) if url.startswith("file:") else url


def storage_url(text: str, *, field: str) -> str:
    """Returns a URL that a caller has given, as a manifest's location is checked.

    Args:
        text: The URL, or an absolute path of this machine.
        field: Name of the argument for the error.

    Raises:
        InvalidInputError: It is no location in storage.
    """
    try:
        return _URL.validate_python(Path(text).as_uri() if text.startswith("/") else text)
    except ValidationError as error:
        found = error.errors()[0]
        context = found.get("ctx", {})
        remedy = context.get("remedy", f"Write {EXAMPLES}")
        raise InvalidInputError(context.get("message", "is not a storage URL"), field=field, remedy=remedy) from None


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
    if not _HOST_AND_PORT.fullmatch(parts.netloc):
        raise refused("has a host or port with other characters than names and addresses have", "Write it as in http://minio:9000")
    return url


StorageUrl = Annotated[
    str,
    StringConstraints(max_length=1024, pattern=r"^[a-z0-9]+://"),
    AfterValidator(_check_storage_url),
    Expected("a URL such as s3://bucket/folder"),
]
"""A folder in storage, without a slash at its end."""
_URL: Final = TypeAdapter[str](StorageUrl)
