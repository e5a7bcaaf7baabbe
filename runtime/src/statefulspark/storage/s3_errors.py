"""What an S3 client says, in the words of our error tree. Only ``s3.py`` uses it.

Texts hold the service's error code and request id, never its message: messages may repeat parts of signed requests.
"""

from __future__ import annotations

import ssl

from botocore import exceptions as boto

from statefulspark.errors import CorruptDataError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.settings import FIELD as STORAGE

_DIR = "checkpointing.dir"

_ABSENT = {"NoSuchKey", "NotFound", "404"}
_LOST_CONDITION = {"PreconditionFailed", "412", "ConditionalRequestConflict"}
_BUSY = {
    "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "TooManyRequests", "TooManyRequestsException",
    "RequestLimitExceeded", "RequestThrottled", "RequestTimeout", "InternalError", "ServiceUnavailable", "BadDigest", "XAmzContentSHA256Mismatch",
    "OperationAborted", "NoSuchUpload", "IncompleteBody", "PreconditionFailed", "412", "ConditionalRequestConflict",
}  # fmt: skip
"""Worth another try: overload, a damaged or broken transfer, or an object that changed between two requests of one transfer."""

_REFUSED = {
    "NoSuchBucket": (_DIR, "Create the bucket, or correct its name in the URL"),
    "InvalidBucketName": (_DIR, "Correct the bucket's name in the URL"),
    "KeyTooLongError": (_DIR, "Shorten the prefix in the URL"),
    "AccessDenied": (_DIR, "Grant s3:GetObject, s3:PutObject, s3:DeleteObject on the prefix and s3:ListBucket on the bucket to these credentials"),
    "AllAccessDisabled": (_DIR, "Ask the owner of the bucket to open it"),
    "InvalidAccessKeyId": (STORAGE, "Correct the access key id"),
    "SignatureDoesNotMatch": (STORAGE, "Correct the secret access key, or the region if the service checks it"),
    "InvalidToken": (STORAGE, "Correct the session token, or drop it when the credentials are permanent"),
    "ExpiredToken": (STORAGE, "Renew the temporary credentials"),
    "TokenRefreshRequired": (STORAGE, "Renew the temporary credentials"),
    "RequestTimeTooSkewed": (STORAGE, "Set the clock of this node"),
    "AuthorizationHeaderMalformed": (f"{STORAGE}.region", "Set the region of the bucket"),
    "PermanentRedirect": (f"{STORAGE}.region", "Set the region (or endpoint) of the bucket"),
    "IllegalLocationConstraintException": (f"{STORAGE}.region", "Set the region of the bucket"),
    "NotImplemented": (f"{STORAGE}.endpoint", "Use a service that supports conditional writes (If-None-Match), such as AWS S3 or MinIO"),
}  # fmt: skip
"""Code -> (field the user wrote, remedy)."""

_REFUSED_BY_STATUS = {
    301: "PermanentRedirect",
    400: "InvalidToken",
    401: "InvalidAccessKeyId",
    403: "AccessDenied",
    501: "NotImplemented",
}
"""A HEAD has no body, so its error has only the status; other codes we do not know are judged by it too."""


def is_absent(exc: Exception) -> bool:
    """Whether the service says that the object is not there."""
    return isinstance(exc, boto.ClientError) and _code(exc) in _ABSENT


def is_lost_condition(exc: Exception) -> bool:
    """Whether a conditional write was refused because the object exists, or because another one is being written now."""
    return isinstance(exc, boto.ClientError) and _code(exc) in _LOST_CONDITION


def translate(exc: Exception, *, url: str, operation: str) -> StatefulSparkError:
    """Return our error for ``exc``, which ended ``operation`` on ``url``.

    Returns:
        InvalidInputError where only the user can help, CorruptDataError where checksums differ, else UnavailableError.
    """
    if isinstance(exc, boto.ClientError):
        return _translate_answer(exc, url, operation)
    name = type(exc).__name__
    if isinstance(exc, boto.FlexibleChecksumError):
        return CorruptDataError("the bytes read do not have the checksum that the service stored", path=url)
    if isinstance(exc, boto.SSLError) and _is_untrusted(exc):
        remedy = "Give the authority's PEM file as caBundle, or correct the host name"
        return InvalidInputError(f"{url}: the TLS certificate is not trusted", field=f"{STORAGE}.endpoint", remedy=remedy)
    if isinstance(exc, (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound, boto.NoAuthTokenError)):
        remedy = "Give accessKeyId and secretAccessKey, set the AWS_* environment, or run with a role"
        return InvalidInputError(f"{url}: no usable credentials ({name})", field=STORAGE, remedy=remedy)
    if isinstance(exc, (boto.TokenRetrievalError, boto.UnauthorizedSSOTokenError, boto.SSOTokenLoadError)):
        return InvalidInputError(f"{url}: the login has expired ({name})", field=STORAGE, remedy="Log in again, or give permanent credentials")
    if isinstance(exc, (boto.BaseEndpointResolverError, boto.ValidationError, boto.ParamValidationError, boto.InvalidRegionError)):
        remedy = "Correct the bucket's name, the region and the endpoint"
        return InvalidInputError(f"{url}: cannot {operation} ({name})", field=STORAGE, remedy=remedy)
    return UnavailableError(f"{url}: no answer to {operation} ({name}); is {STORAGE}.endpoint right and reachable?")


def translate_code(code: str, *, url: str, operation: str) -> StatefulSparkError:
    """Return our error for one key of a batch that failed with ``code``."""
    if code in _REFUSED:
        return _refusal(code, f"{url}: {operation} was refused ({code})")
    return UnavailableError(f"{url}: {operation} failed ({code})")


def _translate_answer(exc: boto.ClientError, url: str, operation: str) -> StatefulSparkError:
    code = _code(exc)
    metadata = exc.response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    message = f"{url}: {operation} was refused ({code}, HTTP {status}, request id {metadata.get('RequestId', 'unknown')})"
    if code in _REFUSED:
        return _refusal(code, message)
    if code in _BUSY or (status >= 500 and status != 501) or status in {0, 200, 408, 429}:
        return UnavailableError(message)
    if status in _REFUSED_BY_STATUS and code in {str(status), "Forbidden", "Bad Request", "Unauthorized", "Moved Permanently", "Not Implemented"}:
        return _refusal(_REFUSED_BY_STATUS[status], message)
    return InvalidInputError(message, field=STORAGE, remedy="See the error code in the documentation of the service")


def _refusal(code: str, message: str) -> InvalidInputError:
    field, remedy = _REFUSED[code]
    return InvalidInputError(message, field=field, remedy=remedy)


def _code(exc: boto.ClientError) -> str:
    return str(exc.response.get("Error", {}).get("Code", ""))


def _is_untrusted(exc: BaseException) -> bool:
    """Look for a failed verification among the causes: other TLS errors (a reset during the handshake) are transient."""
    seen: set[int] = set()
    pending: list[object] = [exc]
    while pending:
        current = pending.pop()
        if id(current) in seen or not isinstance(current, BaseException):
            continue
        seen.add(id(current))
        if isinstance(current, ssl.SSLCertVerificationError):
            return True
        pending += [current.__cause__, current.__context__, getattr(current, "reason", None), *current.args]
        pending += list(getattr(current, "kwargs", {}).values())
    return False
