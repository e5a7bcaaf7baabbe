"""How objects are written to an S3 bucket: encryption, checksums, storage class and tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from statefulspark.config.base import UPGRADE, CelRule, Expected, Flag, Model
from statefulspark.config.problems import Problem, refused

_TAG: Final = re.compile(r"[A-Za-z0-9 +\-=._:/@]*")
_ARCHIVE_CLASSES: Final = ("GLACIER", "DEEP_ARCHIVE")


class S3EncryptionType(StrEnum):
    """Server-side encryption, under the names of the AWS documentation."""

    SSE_S3 = "SSE-S3"
    SSE_KMS = "SSE-KMS"


class S3ChecksumAlgorithm(StrEnum):
    """Checksum of objects."""

    CRC32 = "CRC32"
    SHA1 = "SHA1"
    SHA256 = "SHA256"
    NONE = "NONE"


def _check_tags(tags: dict[str, str]) -> dict[str, str]:
    for key, value in tags.items():
        _check_tag_key(key)
        if len(value) > 256 or not _TAG.fullmatch(value):
            raise refused(f"the value of {key} is not one that S3 takes", "Use at most 256 letters, digits, spaces and + - = . _ : / @")
    return tags


def _check_tag_key(key: str) -> str:
    if not 1 <= len(key) <= 128 or not _TAG.fullmatch(key):
        raise refused("a key is not one that S3 takes", "Use 1 to 128 letters, digits, spaces and + - = . _ : / @")
    if key.lower().startswith("aws:"):
        raise refused("a key starts with aws:, which AWS reserves", "Choose another key")
    return key


def _check_class(name: str) -> str:
    if name in _ARCHIVE_CLASSES:
        raise refused(f"objects of the class {name} cannot be read at once", "Use GLACIER_IR or STANDARD_IA")
    return name


StorageClass = Annotated[
    str,
    StringConstraints(max_length=64, pattern=r"^[A-Z][A-Z0-9_-]*$"),
    AfterValidator(_check_class),
    Expected("a storage class such as STANDARD_IA"),
]


class S3EncryptionSpec(Model):
    """Server-side encryption of objects."""

    cel_rules = (
        CelRule("self.type == 'SSE-KMS' || !has(self.kmsKeyId)", "kmsKeyId: requires SSE-KMS. Set type: SSE-KMS, or remove kmsKeyId"),
        CelRule("self.type == 'SSE-KMS' || !has(self.bucketKey)", "bucketKey: requires SSE-KMS. Set type: SSE-KMS, or remove bucketKey"),
    )

    type: S3EncryptionType = Field(json_schema_extra=UPGRADE)
    """SSE-S3 (keys of the service) or SSE-KMS (a key in AWS KMS)."""

    kms_key_id: (
        Annotated[str, StringConstraints(max_length=2048, pattern=r"^[A-Za-z0-9:/_-]+$"), Expected("the ID, ARN or alias of a KMS key")]
        | None
    ) = Field(default=None, json_schema_extra=UPGRADE)
    """ID, ARN or alias of the KMS key. Defaults to the AWS managed key aws/s3. The job needs kms:GenerateDataKey and kms:Decrypt for it."""

    bucket_key: Flag | None = Field(default=None, json_schema_extra=UPGRADE)
    """True to use an S3 Bucket Key, so that most requests cause no request to KMS. Defaults to the bucket's setting."""

    def conflicts(self) -> Iterator[Problem]:
        """A key is for SSE-KMS."""
        if self.type is S3EncryptionType.SSE_KMS:
            return
        if self.kms_key_id is not None:
            yield Problem("kmsKeyId", "requires SSE-KMS", "Set type: SSE-KMS, or remove kmsKeyId")
        if self.bucket_key is not None:
            yield Problem("bucketKey", "requires SSE-KMS", "Set type: SSE-KMS, or remove bucketKey")


class S3Spec(Model):
    """How the job writes objects to S3. Every kind of write says it: single writes, conditional writes, uploads in parts and copies."""

    cel_rules = (
        CelRule(
            "!has(self.storageClass) || !(self.storageClass in ['GLACIER', 'DEEP_ARCHIVE'])",
            "storageClass: objects of an archive class cannot be read at once. Use GLACIER_IR or STANDARD_IA",
        ),
        CelRule(
            "!has(self.savepointStorageClass) || !(self.savepointStorageClass in ['GLACIER', 'DEEP_ARCHIVE'])",
            "savepointStorageClass: objects of an archive class cannot be read at once. Use GLACIER_IR or STANDARD_IA",
        ),
        CelRule(
            "self.tags.all(key, key.matches('^[A-Za-z0-9 +=._:/@-]{1,128}$') && !key.matches('^[aA][wW][sS]:'))",
            "tags: a key is not one that S3 takes. Use 1 to 128 letters, digits, spaces and + - = . _ : / @, and do not begin with aws:",
        ),
        CelRule(
            "!has(self.kindTag) || !(self.kindTag in self.tags)",
            "kindTag: tags contains the same key. Remove it from tags",
        ),
    )

    encryption: S3EncryptionSpec | None = Field(default=None, json_schema_extra=UPGRADE)
    """Server-side encryption. Defaults to the bucket's default encryption."""

    checksum: S3ChecksumAlgorithm = Field(default=S3ChecksumAlgorithm.CRC32, json_schema_extra=UPGRADE)
    """Checksum that is sent with each write, checked and stored by the service, and verified on reads if the service returns it. NONE, for
    S3-compatible services that do not know these checksums, sends Content-MD5 with single writes instead."""

    storage_class: StorageClass | None = Field(default=None, json_schema_extra=UPGRADE)
    """Storage class of objects, for example STANDARD or INTELLIGENT_TIERING. GLACIER and DEEP_ARCHIVE are rejected. Defaults to the
    service's default. Most objects live for minutes, so classes with a minimum storage duration cost more."""

    savepoint_storage_class: StorageClass | None = Field(default=None, json_schema_extra=UPGRADE)
    """Storage class of the files of savepoints, for example STANDARD_IA or GLACIER_IR. Defaults to storageClass."""

    tags: Annotated[dict[str, Annotated[str, StringConstraints(max_length=256)]], Field(max_length=9), AfterValidator(_check_tags)] = Field(
        default={}, json_schema_extra=UPGRADE
    )
    """Tags of all objects (at most 9), for life-cycle rules and cost allocation. The job needs s3:PutObjectTagging."""

    kind_tag: Annotated[str, StringConstraints(max_length=128, min_length=1), AfterValidator(_check_tag_key)] | None = Field(
        default=None, json_schema_extra=UPGRADE
    )
    """Key of an additional tag whose value is the kind of the object: checkpoint, savepoint, changelog or record."""

    def conflicts(self) -> Iterator[Problem]:
        """A key of a tag has one value."""
        if self.kind_tag is not None and self.kind_tag in self.tags:
            yield Problem("kindTag", "tags contains the same key", "Remove it from tags")
