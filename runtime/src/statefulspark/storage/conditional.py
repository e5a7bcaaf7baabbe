"""Conditional writes whose reply may be lost: unless the service reports plain success, the object is read back and its bytes decide."""

from __future__ import annotations

from collections.abc import Callable

from statefulspark.errors import ConflictError, StatefulSparkError, UnavailableError

_RACES_MAX = 20
"""Number of times an object may be created and deleted during one conditional write."""


def create_once(key: str, data: bytes, *, url: str, create: Callable[[], None], read: Callable[[str], bytes]) -> None:
    """Create the object ``key`` unless it exists; existing identical bytes are this writer's own, whose reply was lost.

    Args:
        key: Name of the object.
        data: Its bytes.
        url: URL of the store, for errors.
        create: Sends the conditional write; raises ConflictError if the object exists, UnavailableError if nobody knows.
        read: Reads the object ``key``; KeyError if it is absent.

    Raises:
        ConflictError: It exists with other bytes.
        UnavailableError: It is not known whether the write happened, or it is created and deleted again and again.
    """
    for _ in range(_RACES_MAX):
        failure: StatefulSparkError
        try:
            create()
        except (ConflictError, UnavailableError) as exc:
            failure = exc
        else:
            return
        try:
            existing = read(key)
        except KeyError:
            if isinstance(failure, UnavailableError):
                # Not written so far, but the request may still be under way: only a repetition of it decides.
                raise failure from failure.__cause__
            continue  # it was deleted again, or the competing write failed
        if existing == data:
            return
        raise ConflictError(f"{key} exists in {url} with other content") from failure
    raise UnavailableError(f"{key} in {url} was repeatedly created and deleted")
