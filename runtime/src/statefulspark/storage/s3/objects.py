"""Settings for objects written to a bucket: encryption, checksum, storage class and tags. Plain, picklable data; pure."""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlencode

from statefulspark.errors import InvalidInputError
from statefulspark.storage.object_kinds import kind_of_object

FIELD = "checkpointing.storage.s3"
"""Manifest path of these settings; prefix of field names in errors."""

ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Objects of these classes must be restored for hours before they can be read."""

TAGS_MAX = 10
"""The most tags that S3 takes per object."""


class S3Encryption(StrEnum):
    """Server-side encryption by the service, under the names of the AWS documentation."""

    SSE_S3 = "SSE-S3"
    SSE_KMS = "SSE-KMS"


class S3Checksum(StrEnum):
    """Checksum by which the service checks a body, and which it stores for readers."""

    CRC32 = "CRC32"
    SHA1 = "SHA1"
    SHA256 = "SHA256"
    NONE = "NONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3ObjectSettings:
    """Settings for written objects. The defaults leave encryption and storage class to the bucket.

    Raises:
        InvalidInputError: A storage class cannot be read at once, a key is given without SSE-KMS, or there are too many tags.
    """

    encryption: S3Encryption | None = None
    """None is the bucket's own default."""

    kms_key_id: str | None = None
    """Id, ARN or alias of the key of SSE-KMS; None is the account's AWS managed key ``aws/s3``."""

    bucket_key: bool | None = None
    """True lets the service derive data keys from one key per bucket, which saves requests to KMS; None is the bucket's own setting."""

    checksum: S3Checksum = S3Checksum.CRC32
    """Sent with each write. NONE sends Content-MD5 with single writes and verifies nothing on reads."""

    storage_class: str | None = None
    """Of all objects; None is the service's default."""

    savepoint_storage_class: str | None = None
    """Of files of savepoints; None is ``storage_class``."""

    tags: tuple[tuple[str, str], ...] = ()
    """Tags of all objects, as pairs of key and value."""

    kind_tag: str | None = None
    """Key of one tag more, whose value is the kind of the object: checkpoint, savepoint, changelog or record."""

    def __post_init__(self) -> None:
        """Refuse settings that could never work."""
        for name, value in (("storageClass", self.storage_class), ("savepointStorageClass", self.savepoint_storage_class)):
            if value in ARCHIVE_CLASSES:
                raise InvalidInputError(
                    f"objects of the class {value} cannot be read at once", field=f"{FIELD}.{name}", remedy="Use GLACIER_IR or STANDARD_IA"
                )
        if self.encryption is not S3Encryption.SSE_KMS and (self.kms_key_id is not None or self.bucket_key is not None):
            name = "kmsKeyId" if self.kms_key_id is not None else "bucketKey"
            raise InvalidInputError("requires SSE-KMS", field=f"{FIELD}.encryption.{name}", remedy="Set type: SSE-KMS")
        if len(self._tags_of("record")) != len(self.tags) + (self.kind_tag is not None):
            raise InvalidInputError("contains a key twice", field=f"{FIELD}.tags", remedy="Give each tag once; kindTag is one more")
        if len(self._tags_of("record")) > TAGS_MAX:
            raise InvalidInputError(
                f"S3 takes {TAGS_MAX} tags per object", field=f"{FIELD}.tags", remedy="Remove some; kindTag is one more"
            )

    def creation(self, name: str) -> dict[str, Any]:
        """Return the parameters of every request that creates the object ``name``: PutObject, CopyObject and CreateMultipartUpload alike."""
        kind = kind_of_object(name)
        storage_class = self.savepoint_storage_class if kind == "savepoint" and self.savepoint_storage_class else self.storage_class
        said: dict[str, Any] = {}
        if self.encryption is not None:
            said["ServerSideEncryption"] = "AES256" if self.encryption is S3Encryption.SSE_S3 else "aws:kms"
        if self.kms_key_id is not None:
            said["SSEKMSKeyId"] = self.kms_key_id
        if self.bucket_key is not None:
            said["BucketKeyEnabled"] = self.bucket_key
        if storage_class is not None:
            said["StorageClass"] = storage_class
        if tags := self._tags_of(kind):
            said["Tagging"] = urlencode(tags, quote_via=quote)
        return said

    def transfer(self) -> dict[str, Any]:
        """Return the checksum parameters for an upload in parts."""
        return {} if self.checksum is S3Checksum.NONE else {"ChecksumAlgorithm": self.checksum.value}

    def checked(self, data: bytes) -> dict[str, Any]:
        """Return the checksum by which the service refuses a body that was damaged on the way (and which spares the chunked encoding)."""
        match self.checksum:
            case S3Checksum.CRC32:
                return self.transfer() | {"ChecksumCRC32": _base64(zlib.crc32(data).to_bytes(4, "big"))}
            case S3Checksum.SHA1:
                return self.transfer() | {"ChecksumSHA1": _base64(hashlib.sha1(data, usedforsecurity=False).digest())}
            case S3Checksum.SHA256:
                return self.transfer() | {"ChecksumSHA256": _base64(hashlib.sha256(data).digest())}
            case S3Checksum.NONE:
                return {"ContentMD5": content_md5(data)}

    def _tags_of(self, kind: str) -> dict[str, str]:
        return dict(self.tags) | ({self.kind_tag: kind} if self.kind_tag is not None else {})


def content_md5(data: bytes) -> str:
    """The checksum that every S3-compatible service knows."""
    return _base64(hashlib.md5(data, usedforsecurity=False).digest())


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
