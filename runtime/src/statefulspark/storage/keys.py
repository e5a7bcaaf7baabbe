"""Validates keys the same way for every store, so that data can be moved between file:// and s3://, and makes keys of short-lived objects."""

from __future__ import annotations

import uuid

from statefulspark.errors import InvalidInputError

TEMPORARY_PREFIX = ".statefulspark-tmp-"
"""File names that start so belong to unfinished local writes; no object may be called so."""

KEY_BYTES_MAX = 900
"""S3 allows 1024 bytes; the rest is for the prefix of the store."""

PART_BYTES_MAX = 255
"""The longest file name of the usual file systems."""

_REMEDY = "Use relative keys made of parts joined by '/', without empty parts, '.', '..', backslashes or control characters"


def check_key(key: str, *, field: str = "key") -> str:
    """Return ``key`` when every store can hold it.

    Args:
        key: Relative path, at most ``KEY_BYTES_MAX`` bytes of UTF-8; each part at most ``PART_BYTES_MAX``.
        field: Field that contains the key, for the error.

    Raises:
        InvalidInputError: It is empty, absolute, climbs (``..``), has empty parts or unusable characters, or is too long.
    """
    parts = key.split("/")
    for part in parts:
        if part in {"", ".", ".."}:
            message = f"{key!r} has an empty, '.' or '..' part"
            raise InvalidInputError(message, field=field, remedy=_REMEDY)
    _check_characters(key, parts, field)
    return key


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` when it can begin a key; its last part may be incomplete or empty.

    Raises:
        InvalidInputError: No key could begin so.
    """
    parts = prefix.split("/")
    for part in parts[:-1]:
        if part in {"", ".", ".."}:
            message = f"prefix {prefix!r} has an empty, '.' or '..' part"
            raise InvalidInputError(message, field="prefix", remedy=_REMEDY)
    _check_characters(prefix, [], "prefix")
    return prefix


def check_folder(prefix: str) -> str:
    """Return ``prefix`` when it names a folder: empty, or it ends with '/'.

    Raises:
        InvalidInputError: It does not.
    """
    if prefix and not prefix.endswith("/"):
        message = f"prefix {prefix!r} does not end with '/'"
        raise InvalidInputError(message, field="prefix", remedy="Add the slash, or pass an empty prefix for the root")
    return check_prefix(prefix)


def _check_characters(text: str, parts: list[str], field: str) -> None:
    if "\\" in text or any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        message = f"{text!r} has a backslash or a control character"
        raise InvalidInputError(message, field=field, remedy=_REMEDY)
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as exc:
        message = f"{text!r} is not valid Unicode"
        raise InvalidInputError(message, field=field, remedy=_REMEDY) from exc
    if size > KEY_BYTES_MAX or any(len(part.encode("utf-8")) > PART_BYTES_MAX for part in parts):
        message = f"{text[:80]!r}... is longer than {KEY_BYTES_MAX} bytes, or one part longer than {PART_BYTES_MAX}"
        raise InvalidInputError(message, field=field, remedy="Shorten the job id or the names")
    if any(part.startswith(TEMPORARY_PREFIX) for part in parts):
        message = f"{text!r} starts a part with {TEMPORARY_PREFIX!r}, which is kept for unfinished writes"
        raise InvalidInputError(message, field=field, remedy="Choose another name")


def probe_key() -> str:
    """Return a new ``_probe-<32 hex>``: the key of an object that its writer deletes again at once."""
    return f"_probe-{uuid.uuid4().hex}"
