"""Translates HTTP answers of gs:// and abfss:// into our error hierarchy. Messages never contain the service's own text, which may repeat requests."""

from __future__ import annotations

from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.storage_settings import FIELD as STORAGE

_DIR = "checkpointing.dir"


def of_status(status: int, *, code: str, url: str, operation: str, rights: str) -> StatefulSparkError:
    """Return our error for an answer other than success; absent objects and lost conditions are the caller's.

    Args:
        status: HTTP status; 0 when the answer had none.
        code: The service's error code, or empty.
        url: The object.
        operation: The failed operation, a verb.
        rights: The roles that the identity needs, for the remedy.
    """
    message = f"{url}: {operation} was refused ({code or 'no code'}, HTTP {status})"
    if status in {0, 200, 408, 409, 412, 416, 429} or (status >= 500 and status != 501):
        return UnavailableError(message)
    if 300 <= status < 400:
        return InvalidInputError(
            message, field=f"{STORAGE}.endpoint", remedy="Give the address that it redirects to; redirects are not followed"
        )
    if status == 401:
        return InvalidInputError(message, field=STORAGE, remedy="Correct or renew the credentials")
    if status == 403:
        return InvalidInputError(message, field=_DIR, remedy=f"Grant these credentials {rights}")
    if status == 404:
        return InvalidInputError(message, field=_DIR, remedy="Create the bucket or container, or correct its name in the URL")
    return InvalidInputError(message, field=STORAGE, remedy="Look up the status and the code in the service's documentation")


def unreachable(url: str, operation: str, error: BaseException) -> UnavailableError:
    """Return our error for a request without an answer."""
    name = type(error).__name__
    return UnavailableError(f"{url}: no response to {operation} ({name}). Check that {STORAGE}.endpoint is correct and reachable")


def untrusted(url: str) -> InvalidInputError:
    """Return our error for a TLS certificate that failed verification."""
    remedy = "Give the authority's PEM file as caBundle, or correct the host name"
    return InvalidInputError(f"{url}: the TLS certificate is not trusted", field=f"{STORAGE}.endpoint", remedy=remedy)


def no_credentials(url: str, error: BaseException, remedy: str) -> InvalidInputError:
    """Return our error for an identity that cannot be had."""
    return InvalidInputError(f"{url}: no usable credentials ({type(error).__name__})", field=STORAGE, remedy=remedy)


def missing_library(scheme: str, extra: str) -> InvalidInputError:
    """Return our error for a store whose client is not installed."""
    remedy = f'Install it with: pip install "statefulspark[{extra}]"'
    return InvalidInputError(f"{scheme}:// needs the optional extra {extra}, which is not installed", field=_DIR, remedy=remedy)
