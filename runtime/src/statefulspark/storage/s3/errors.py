"""Translates S3 errors into our error hierarchy: this module knows the codes, ``s3.py`` the exception classes.

Messages contain the service's error code and request id, never its own message, which may repeat parts of signed requests.
"""

from __future__ import annotations

import ssl

from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.s3.objects import FIELD as OBJECTS
from statefulspark.storage.storage_settings import FIELD as STORAGE

_DIR = "checkpointing.dir"
_KEY = f"{OBJECTS}.encryption.kmsKeyId"

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
    "AccessDenied": (_DIR, "Grant these credentials the permissions of docs/how-to/s3.md"),
    "AllAccessDisabled": (_DIR, "Ask the owner of the bucket to open it"),
    "InvalidAccessKeyId": (STORAGE, "Correct the access key id"),
    "SignatureDoesNotMatch": (STORAGE, "Correct the secret access key, or the region if the service checks it"),
    "InvalidToken": (STORAGE, "Correct the session token, or drop it when the credentials are permanent"),
    "ExpiredToken": (STORAGE, "Renew the temporary credentials"),
    "ExpiredTokenException": (STORAGE, "Renew the temporary credentials"),
    "TokenRefreshRequired": (STORAGE, "Renew the temporary credentials"),
    "RequestTimeTooSkewed": (STORAGE, "Set the clock of this node"),
    "AuthorizationHeaderMalformed": (f"{STORAGE}.region", "Set the region of the bucket"),
    "PermanentRedirect": (f"{STORAGE}.region", "Set the region (or endpoint) of the bucket"),
    "IllegalLocationConstraintException": (f"{STORAGE}.region", "Set the region of the bucket"),
    "NotImplemented": (
        f"{STORAGE}.endpoint",
        "Use a service with conditional writes (If-None-Match), such as AWS S3 or MinIO. If it has them, remove from storage.s3 what it lacks",
    ),
    "InvalidObjectState": (
        _DIR,
        "The object is in an archive class. Restore it with the tools of the service, and exclude this prefix from life-cycle rules that archive",
    ),
    "InvalidStorageClass": (f"{OBJECTS}.storageClass", "Use a class that the service knows, such as STANDARD or STANDARD_IA"),
    "InvalidTag": (f"{OBJECTS}.tags", "Use letters, digits, spaces and + - = . _ : / @ in keys and values"),
    "InvalidEncryptionAlgorithmError": (f"{OBJECTS}.encryption", "Use an encryption that the service and the bucket support"),
    "KMS.NotFoundException": (_KEY, "Correct the key's id or ARN; it must be in the region of the bucket"),
    "KMS.DisabledException": (_KEY, "Enable the key"),
    "KMS.KMSInvalidStateException": (_KEY, "Cancel the deletion of the key, or enable it"),
    "KMS.InvalidKeyUsageException": (_KEY, "Use a symmetric key for encryption"),
    "KMS.UnrecognizedClientException": (_KEY, "Correct the key's ARN; AWS asks for signature version 4, which this client uses"),
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

_STATUS_TEXTS = {"Forbidden", "Bad Request", "Unauthorized", "Moved Permanently", "Not Implemented"}


def is_absent(code: str) -> bool:
    """True if the service reports that the object does not exist."""
    return code in _ABSENT


def is_lost_condition(code: str) -> bool:
    """True if a conditional write was refused because the object exists, or because another one is being written now."""
    return code in _LOST_CONDITION


def translate_answer(code: str, *, status: int, request_id: str, url: str, operation: str, grant: str | None = None) -> StatefulSparkError:
    """Return our error for an answer other than success.

    Args:
        code: The service's error code; for a HEAD, which has no body, the status as text.
        status: HTTP status; 0 when the answer had none.
        request_id: The service's request id, for support requests.
        url: The object.
        operation: The failed operation, a verb.
        grant: Remedy for a denied request, where it is known which permission it needs.

    Returns:
        InvalidInputError where only the user can help, else UnavailableError.
    """
    message = f"{url}: {operation} was refused ({code}, HTTP {status}, request id {request_id})"
    if code in _REFUSED:
        return _refusal(code, message, grant)
    if code in _BUSY or status in {0, 200, 408, 429} or (status >= 500 and status != 501):
        return UnavailableError(message)
    if status in _REFUSED_BY_STATUS and code in _STATUS_TEXTS | {str(status)}:
        return _refusal(_REFUSED_BY_STATUS[status], message, grant)
    return InvalidInputError(message, field=STORAGE, remedy="Look up the error code in the service's documentation")


def translate_code(code: str, *, url: str, operation: str, grant: str | None = None) -> StatefulSparkError:
    """Return our error for one object of a batch that failed with ``code``."""
    message = f"{url}: {operation} was refused ({code})"
    return _refusal(code, message, grant) if code in _REFUSED else UnavailableError(message)


def _refusal(code: str, message: str, grant: str | None) -> InvalidInputError:
    field, remedy = _REFUSED[code]
    return InvalidInputError(message, field=field, remedy=grant if grant is not None and code == "AccessDenied" else remedy)


def is_untrusted(exc: BaseException) -> bool:
    """True if a TLS error comes from a failed verification; others (a reset during the handshake) are transient."""
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
