"""Translates errors of the HDFS client into our error hierarchy. Messages name the class of the error and never contain its text, which is a Java stack."""

from __future__ import annotations

import re

from statefulspark.errors import CorruptDataError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.storage_settings import FIELD as STORAGE

_DIR = "checkpointing.dir"
_NAMED = re.compile(r"(?P<kind>[A-Z]\w+)(?:\(\"(?P<java>[\w.$]+)\")?")
_IDENTITY = {"SASLError", "GSSAPIError", "NoSASLMechanism"}
_REFUSED = {
    "AccessControlException": "Give this user write access to the directory, or choose another one",
    "AuthorizationException": "Let this user connect to the NameNode, or set HADOOP_USER_NAME to one that may",
    "InvalidPathException": "Choose a path that HDFS allows",
    "ParentNotDirectoryException": "A file and a directory collide; choose another directory",
    "InvalidToken": "Renew the delegation token of HADOOP_TOKEN_FILE_LOCATION",
}
_FULL = {"DSQuotaExceededException", "NSQuotaExceededException", "QuotaByStorageTypeExceededException"}


def name_of(error: BaseException) -> str:
    """The name of the error: the Java class that the NameNode names, else that of the client, else that of the exception."""
    found = _NAMED.match(str(error)) if isinstance(error, RuntimeError) else None
    if found is None:
        return type(error).__name__
    return (found["java"] or found["kind"]).rpartition(".")[2].rpartition("$")[2]


def is_not_empty(error: BaseException) -> bool:
    """Return True if a directory was not deleted because it is not empty."""
    return name_of(error) == "PathIsNotEmptyDirectoryException"


def is_below_a_file(error: BaseException) -> bool:
    """Return True if the path needs a directory where a file is; the NameNode reports this in several ways."""
    return isinstance(error, RuntimeError) and "(is not a directory)" in str(error)


def translate(error: BaseException, *, url: str, operation: str) -> StatefulSparkError:
    """Return our error for ``error``, which ended ``operation`` on ``url``; absent and existing files are the caller's."""
    name = "AccessControlException" if isinstance(error, PermissionError) else name_of(error)
    if is_below_a_file(error):
        name = "ParentNotDirectoryException"
    message = f"{url}: {operation} was refused ({name})"
    if name in _REFUSED:
        return InvalidInputError(message, field=_DIR, remedy=_REFUSED[name])
    if name in _IDENTITY:
        remedy = "Log in with kinit, or set KRB5CCNAME, or HADOOP_TOKEN_FILE_LOCATION to a file of delegation tokens"
        return InvalidInputError(message, field=STORAGE, remedy=remedy)
    if name in _FULL:
        return UnavailableError(f"{_DIR}: {url}: the quota is exceeded. Free space there or raise it", retry_after_s=10.0)
    if name == "ChecksumError":
        return CorruptDataError("the data read does not match the checksum stored by HDFS", path=url)
    return UnavailableError(f"{url}: no response to {operation} ({name}). Check that the NameNode in {_DIR} is correct and reachable")
