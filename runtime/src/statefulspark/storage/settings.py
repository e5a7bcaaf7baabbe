"""How to reach storage: plain data, given by the manifest, picklable."""

from __future__ import annotations

from dataclasses import dataclass, field

from statefulspark.errors import InvalidInputError

FIELD = "checkpointing.storage"
"""Where the user wrote these settings; the start of every field name in errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Settings of an S3-compatible store; file:// needs none.

    What is None comes from the usual AWS places (environment, shared files, container or instance role). A pickled
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

    def __post_init__(self) -> None:
        """Refuse settings that could never work."""
        if self.endpoint is not None:
            if not self.endpoint.startswith(("http://", "https://")):
                raise InvalidInputError("must start with http:// or https://", field=f"{FIELD}.endpoint", remedy="Give the full URL")
            if "@" in self.endpoint:
                raise InvalidInputError(
                    "must not carry credentials", field=f"{FIELD}.endpoint", remedy="Give them as accessKeyId and secretAccessKey"
                )
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise InvalidInputError(
                "accessKeyId and secretAccessKey go together", field=FIELD, remedy="Give both, or none to use the usual AWS ways"
            )
        if self.session_token is not None and self.access_key_id is None:
            raise InvalidInputError("sessionToken needs accessKeyId and secretAccessKey", field=FIELD, remedy="Give all three")
