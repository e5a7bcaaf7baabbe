"""Names the permission that a denied request lacks. docs/how-to/s3.md has the policy that grants all of them. Pure."""

from __future__ import annotations

import re
from typing import Final

_NAMED: Final = re.compile(r"not authorized to perform: ((?:s3|s3express|kms|sts):[A-Za-z]{3,64})\b")
"""AWS names the action in most of its messages. Only this name is repeated: the rest may hold account numbers and more."""

_ON_OBJECTS: Final = {
    "PutObject": ("s3:PutObject",),
    "CreateMultipartUpload": ("s3:PutObject",),
    "UploadPart": ("s3:PutObject",),
    "CompleteMultipartUpload": ("s3:PutObject",),
    "CopyObject": ("s3:GetObject", "s3:PutObject"),
    "UploadPartCopy": ("s3:GetObject", "s3:PutObject"),
    "GetObject": ("s3:GetObject",),
    "HeadObject": ("s3:GetObject",),
    "DeleteObjects": ("s3:DeleteObject",),
    "AbortMultipartUpload": ("s3:AbortMultipartUpload",),
    "PutObjectTagging": ("s3:PutObjectTagging",),
}
_TAGGED: Final = frozenset({"PutObject", "CreateMultipartUpload", "CopyObject"})
_DATA_KEYS: Final = frozenset({"PutObject", "CreateMultipartUpload", "UploadPart", "CopyObject", "UploadPartCopy"})
"""Requests for which SSE-KMS makes a data key; parts also decrypt it."""


def permissions_of(operation: str, *, tags: bool, kms: bool) -> tuple[str, ...]:
    """Return the permissions that a request of the S3 API needs.

    Args:
        operation: Its name, such as ``PutObject``.
        tags: True if objects are written with tags.
        kms: True if objects are written with SSE-KMS.
    """
    if operation == "ListObjectsV2":
        return ("s3:ListBucket",)
    needed = list(_ON_OBJECTS.get(operation, ()))
    if tags and operation in _TAGGED:
        needed.append("s3:PutObjectTagging")
    if kms and operation in _DATA_KEYS:
        needed += ["kms:GenerateDataKey", "kms:Decrypt"] if operation != "PutObject" else ["kms:GenerateDataKey"]
    if kms and operation == "GetObject":
        needed.append("kms:Decrypt")
    return tuple(needed)


def remedy_for(operation: str, message: str, *, bucket: str, prefix: str, tags: bool, kms: bool) -> str:
    """Return the permission that the bucket's owner must grant after ``operation`` was denied.

    Args:
        operation: Name of the request in the S3 API.
        message: The service's message; an action that it names is the only one that is missing.
        bucket: The bucket.
        prefix: Prefix of the store in it, with a slash at its end, or empty.
        tags: True if objects are written with tags.
        kms: True if objects are written with SSE-KMS.
    """
    found = _NAMED.search(message)
    needed = (found[1],) if found else permissions_of(operation, tags=tags, kms=kms)
    objects = f"arn:aws:s3:::{bucket}/{prefix}*"
    places = {"s3:ListBucket": f"arn:aws:s3:::{bucket}"}
    granted = [f"{each} on {'the key' if each.startswith('kms:') else places.get(each, objects)}" for each in needed]
    if not granted:
        return f"Grant these credentials the permissions of docs/how-to/s3.md on {objects}"
    absent = (
        f" (and s3:ListBucket on arn:aws:s3:::{bucket}: without it, S3 answers like this for an object that does not exist)"
        if operation in {"GetObject", "HeadObject"} and not found
        else ""
    )
    return f"Grant {', '.join(granted)} to these credentials{absent}. docs/how-to/s3.md has the whole policy"
