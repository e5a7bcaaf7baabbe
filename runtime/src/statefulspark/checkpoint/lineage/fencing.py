"""Fencing: each start of a driver claims the next attempt number, and a driver that no longer holds the latest claim must stop.

A claim becomes invalid in two ways: the next number is claimed, or the claim itself is missing or belongs to another driver. The latter
happens if the job's folder was emptied, so that numbers start again, or if retention has removed claims that are many attempts old.
Claims are deleted one by one in ascending order. So if the next claim is gone, a driver's own claim is gone too, and a driver that checks
the next claim first and its own afterwards cannot miss both.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import decode_document, encode_document
from statefulspark.checkpoint.formats.records import AttemptClaim
from statefulspark.errors import ConflictError, FencedError
from statefulspark.storage.base import ObjectStore

ATTEMPTS_KEPT = 100
"""Retention keeps the claims and starts of this many latest attempts. A driver whose own claim is gone is fenced."""

_CLAIM_TRIES_MAX = 100


def claim_attempt(store: ObjectStore, *, now_ms: int) -> AttemptClaim:
    """Take the next attempt number; from then on every older attempt is fenced.

    Args:
        store: Opened at the job folder.
        now_ms: Current time, milliseconds since the epoch.

    Raises:
        ConflictError: Other drivers took every number that was tried; start again later.
        UnavailableError: Storage did not answer.
    """
    found = (paths.attempt_of(info.key) for info in store.list(paths.ATTEMPTS_PREFIX))
    number = max((attempt for attempt, _ in filter(None, found)), default=0)
    for _ in range(_CLAIM_TRIES_MAX):
        number += 1
        try:
            return _claim(store, number, now_ms)
        except ConflictError:
            continue
    raise ConflictError(f"{store.url}: lost the race for an attempt number {_CLAIM_TRIES_MAX} times")


def claim_after(store: ObjectStore, claim: AttemptClaim, *, now_ms: int) -> AttemptClaim:
    """Take the number after ``claim``, and no other.

    Raises:
        FencedError: Another driver holds it, or ``claim`` does not count any more.
        UnavailableError: Storage did not answer.
    """
    refuse_fenced(store, claim)
    try:
        return _claim(store, claim.attempt + 1, now_ms)
    except ConflictError as lost:
        raise _fenced(store, claim) from lost


def is_fenced(store: ObjectStore, claim: AttemptClaim) -> bool:
    """Return True if the driver that made ``claim`` must stop.

    One request for the next number is enough, because numbers are taken in sequence.

    Args:
        store: Opened at the job folder.
        claim: The driver's own.

    Raises:
        CorruptDataError: The claim is damaged.
        UnavailableError: Storage did not answer.
    """
    return store.head(paths.attempt_key(claim.attempt + 1)) is not None or not _is_held(store, claim)


def refuse_fenced(store: ObjectStore, claim: AttemptClaim) -> None:
    """Check that the driver may continue.

    Raises:
        FencedError: A newer attempt was claimed, or the claim is gone.
        CorruptDataError: The claim is damaged.
        UnavailableError: Storage did not answer.
    """
    if is_fenced(store, claim):
        raise _fenced(store, claim)


def delete_claims(store: ObjectStore, keys: Iterable[str]) -> None:
    """Delete claims in ascending order; one request for several would delete them in any order."""
    for key in sorted(keys):
        store.delete([key])


def _claim(store: ObjectStore, number: int, now_ms: int) -> AttemptClaim:
    claim = AttemptClaim(attempt=number, created_ms=now_ms, nonce=uuid4().hex)
    store.put_if_absent(paths.attempt_key(number), encode_document("attempt", claim))
    return claim


def _is_held(store: ObjectStore, claim: AttemptClaim) -> bool:
    key = paths.attempt_key(claim.attempt)
    try:
        data = store.get(key)
    except KeyError:
        return False
    return data == encode_document("attempt", claim) or claim == decode_document(
        data, "attempt", AttemptClaim, path=paths.url_of(store.url, key)
    )


def _fenced(store: ObjectStore, claim: AttemptClaim) -> FencedError:
    return FencedError(f"{store.url}: attempt {claim.attempt} of the job was replaced by a newer one or cancelled; this driver must stop")
