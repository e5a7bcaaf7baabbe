"""Makes the client of S3Store: settings, credentials that are read again when they are refused, and how objects are written."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

import boto3
import structlog
from botocore import exceptions as boto
from botocore.config import Config
from botocore.credentials import CredentialResolver
from botocore.session import Session

from statefulspark.errors import InvalidInputError
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.s3.credentials import RotatingProvider, loader
from statefulspark.storage.s3.objects import S3Checksum, S3ObjectSettings, content_md5
from statefulspark.storage.storage_settings import FIELD, StorageSettings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_log = structlog.get_logger(__name__)

_CREATING = ("PutObject", "CopyObject", "CreateMultipartUpload")
"""The requests that create an object; parts and the completion of an upload take over what its beginning said."""


def connect(settings: StorageSettings, limits: S3Limits) -> S3Client:
    """Return a client; nothing is contacted yet, unless credentials come from the network.

    Raises:
        InvalidInputError: The settings, or the AWS configuration of this machine, cannot be used.
    """
    if settings.ca_bundle is not None:
        _check_bundle(settings.ca_bundle)
    provider = RotatingProvider(loader(settings), limits.attempts)
    try:
        botocore_session = Session()
        botocore_session.register_component("credential_provider", CredentialResolver([provider]))
        session = boto3.session.Session(region_name=settings.region, botocore_session=botocore_session)
        client = session.client(
            "s3",
            region_name=settings.region or session.region_name or "us-east-1",
            endpoint_url=settings.endpoint,
            verify=settings.ca_bundle,
            config=_config(settings, limits),
        )
    except (boto.BotoCoreError, ValueError) as exc:
        # botocore uses ValueError for an endpoint that is no URL.
        raise InvalidInputError(
            f"cannot create an S3 client ({type(exc).__name__})",
            field=FIELD,
            remedy="Correct endpoint, region, caBundle or the AWS profile",
        ) from exc
    _register(client, provider, settings.s3)
    return client


def _config(settings: StorageSettings, limits: S3Limits) -> Config:
    path_style = settings.path_style if settings.path_style is not None else settings.endpoint is not None
    checksums: Literal["when_required", "when_supported"] = "when_required" if settings.s3.checksum is S3Checksum.NONE else "when_supported"
    return Config(
        connect_timeout=limits.connect_timeout_s,
        read_timeout=limits.read_timeout_s,
        max_pool_connections=limits.connections,
        # "standard", not "adaptive": the latter's rate limiter makes callers wait without a bound.
        retries={"mode": "standard", "total_max_attempts": limits.attempts},
        s3={"addressing_style": "path" if path_style else "auto"},
        tcp_keepalive=True,
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
    )


def _register(client: S3Client, provider: RotatingProvider, objects: S3ObjectSettings) -> None:
    """Add the parameters that every request needs, whether this package or the transfer manager sends it."""
    events = client.meta.events

    def say_how(params: dict[str, Any], **_: Any) -> None:
        params.update(objects.creation(params["Key"]))

    for operation in _CREATING:
        events.register(f"provide-client-params.s3.{operation}", say_how)
    if objects.checksum is S3Checksum.NONE:
        events.register("before-sign.s3.DeleteObjects", _add_content_md5)
    events.register("before-sign.s3", provider.remember)
    # The stubs know only handlers that answer nothing.
    events.register("needs-retry.s3", cast("Callable[..., None]", provider.decide))
    events.register("after-call.s3.AbortMultipartUpload", _warn_of_parts)


def _add_content_md5(request: Any, **_: Any) -> None:
    """DeleteObjects needs a checksum, and botocore's own choice is CRC32, which services that want NONE may not know."""
    headers = request.headers
    for name in [name for name in headers if name.lower().startswith(("x-amz-checksum-", "x-amz-sdk-checksum-", "content-md5"))]:
        del headers[name]
    headers["Content-MD5"] = content_md5(request.data)


def _warn_of_parts(http_response: Any, **_: Any) -> None:
    """The transfer manager drops this error in favor of the one that ended the upload."""
    if http_response.status_code == 403:
        _log.warning(
            "an interrupted upload could not be aborted: its parts stay and cost money",
            missing_permission="s3:AbortMultipartUpload",
            remedy="Grant it on the prefix, and give the bucket a life-cycle rule that aborts incomplete multipart uploads",
        )


def _check_bundle(path: str) -> None:
    """Botocore would report an unusable bundle as a broken connection, at the first request."""
    try:
        ssl.create_default_context(cafile=path)
    except OSError as exc:
        remedy = "Give a PEM file of authorities that exists on every node"
        raise InvalidInputError(f"{path} cannot be used ({type(exc).__name__})", field=f"{FIELD}.caBundle", remedy=remedy) from exc
