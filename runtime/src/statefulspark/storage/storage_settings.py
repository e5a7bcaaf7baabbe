"""Storage settings: plain, picklable data from the manifest."""

from __future__ import annotations

from dataclasses import dataclass, field

from statefulspark.errors import InvalidInputError
from statefulspark.storage.s3.objects import S3ObjectSettings

FIELD = "checkpointing.storage"
"""Manifest path of these settings; prefix of field names in errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Settings of an object store; file:// and hdfs:// need none. gs:// and abfss:// use ``endpoint`` and ``ca_bundle`` only.

    Fields that are None come from the AWS default credential chain (environment, shared files, container or instance role). A pickled
    instance holds the explicit secrets, because executors need them: send it over trusted channels only. ``repr`` hides them.

    Raises:
        InvalidInputError: The endpoint is no http(s) URL or carries credentials, or only half of a key pair is given.
    """

    endpoint: str | None = None
    """Base URL of an S3-compatible service, e.g. ``http://minio:9000``; None is AWS."""

    region: str | None = None
    """AWS region, e.g. ``eu-central-1``; None takes AWS_REGION or the shared configuration, at last ``us-east-1``."""

    path_style: bool | None = None
    """True addresses buckets as ``endpoint/bucket`` (MinIO, Ceph), False as ``bucket.endpoint``; None: True when ``endpoint`` is set."""

    access_key_id: str | None = field(default=None, repr=False)
    """Together with ``secret_access_key``; None takes the usual AWS ways."""

    secret_access_key: str | None = field(default=None, repr=False)
    """The secret half of the pair."""

    session_token: str | None = field(default=None, repr=False)
    """Only for temporary credentials."""

    ca_bundle: str | None = None
    """Path of a PEM file with the authorities to trust for ``endpoint``; must exist on every node."""

    s3: S3ObjectSettings = field(default_factory=S3ObjectSettings)
    """Settings for written objects: encryption, checksum, storage class and tags."""

    def __post_init__(self) -> None:
        """Refuse settings that could never work."""
        if self.endpoint is not None:
            if not self.endpoint.startswith(("http://", "https://")):
                raise InvalidInputError("must start with http:// or https://", field=f"{FIELD}.endpoint", remedy="Give the full URL")
            if "@" in self.endpoint:
                raise InvalidInputError(
                    "must not contain credentials", field=f"{FIELD}.endpoint", remedy="Set accessKeyId and secretAccessKey"
                )
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise InvalidInputError(
                "accessKeyId and secretAccessKey must be set together",
                field=FIELD,
                remedy="Set both, or neither to use the AWS default credential chain",
            )
        if self.session_token is not None and self.access_key_id is None:
            raise InvalidInputError("sessionToken requires accessKeyId and secretAccessKey", field=FIELD, remedy="Set all three")
