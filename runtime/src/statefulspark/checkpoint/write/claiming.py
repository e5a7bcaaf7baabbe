"""Claims the savepoint that a job starts from, and deletes it when the job no longer needs it (Flink's claim mode ``CLAIM``).

A job that starts from a snapshot copies it (`copying`), so the snapshot remains its owner's (``NO_CLAIM``). A job that claims a savepoint also
writes an object ``_claimed`` with its own URL beside the savepoint's ``_metadata``. At most one job can write it. The job names the savepoint in the starts of its
attempts, and deletes it after the first checkpoint that it completes itself: until then, the savepoint is what a user would go back to.

Crash before the start of the attempt is written: the job does not delete the savepoint, and may claim it again. Crash after it: the next driver deletes
the savepoint after its first checkpoint. Crash during the deletion: the savepoint has no ``_metadata`` and is none any more; ``_claimed`` is deleted last, so the
next driver deletes the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import decode_document, encode_document
from statefulspark.checkpoint.formats.records import SavepointClaim
from statefulspark.checkpoint.transfers import read_again
from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark.storage.base import ObjectStore


def check_claimable(origin: StoredCheckpoint, job_url: str) -> None:
    """Check that a job may claim the snapshot that it starts from; writes nothing.

    Args:
        origin: What the job starts from.
        job_url: URL of the job's folder.

    Raises:
        InvalidInputError: It is a checkpoint, or another job has claimed it.
        CorruptDataError: The other job's claim is damaged.
        UnavailableError: Storage did not answer.
    """
    if origin.metadata.kind != "savepoint":
        raise InvalidInputError(
            f"CLAIM is not possible for {origin.url}: it is a checkpoint, which belongs to the job that took it",
            field="claimMode",
            remedy="Use NO_CLAIM, or start from a savepoint",
        )
    _refuse_other(origin, _claim_of(origin.store, origin.folder), job_url)


def claim_savepoint(origin: StoredCheckpoint, job_url: str, *, now_ms: int) -> None:
    """Claim a savepoint for a job. A job may repeat it.

    Args:
        origin: The savepoint.
        job_url: URL of the job's folder.
        now_ms: Current time, milliseconds since the epoch.

    Raises:
        InvalidInputError: It is a checkpoint, or another job has claimed it.
        UnavailableError: Storage did not answer, or denied the write.
    """
    check_claimable(origin, job_url)
    claim = SavepointClaim(job=job_url.rstrip("/"), created_ms=now_ms)
    try:
        origin.store.put_if_absent(paths.claimed_key(origin.folder), encode_document("savepoint-claim", claim))
    except ConflictError:
        _refuse_other(origin, _claim_of(origin.store, origin.folder), job_url)


def delete_claimed(url: str, job_url: str, open_store: OpenStore, check_fence: Callable[[], None]) -> bool:
    """Delete a savepoint that a job has claimed. Files without the job's claim are left alone, because they are another owner's.

    Args:
        url: URL of the savepoint's folder.
        job_url: URL of the job's folder.
        open_store: Opens the store of a URL.
        check_fence: Raises if a newer driver runs the job; called before anything is deleted.

    Returns:
        True if it was deleted, False if it is gone or is not the job's.

    Raises:
        FencedError: A newer driver runs the job; nothing was deleted.
        CorruptDataError: The claim is damaged; nothing was deleted.
        UnavailableError: Storage did not answer, or denied the deletion; some files may be left.
    """
    root, folder = paths.folder_of(url)
    store = open_store(root)
    claim = _claim_of(store, folder)
    if claim is None or not paths.same_folder(claim.job, job_url):
        return False
    metadata, claimed = paths.metadata_key(folder), paths.claimed_key(folder)
    names = paths.own_files((info.key for info in store.list(f"{folder}/")), folder)
    check_fence()
    store.delete([metadata])
    store.delete(name for name in names if name not in (metadata, claimed))
    store.delete([claimed])
    return True


def _claim_of(store: ObjectStore, folder: str) -> SavepointClaim | None:
    key = paths.claimed_key(folder)
    path = paths.url_of(store.url, key)
    try:
        return read_again(lambda: decode_document(store.get(key), "savepoint-claim", SavepointClaim, path=path))
    except KeyError:
        return None


def _refuse_other(origin: StoredCheckpoint, claim: SavepointClaim | None, job_url: str) -> None:
    if claim is not None and not paths.same_folder(claim.job, job_url):
        raise InvalidInputError(
            f"the job in {claim.job} has claimed {origin.url} and deletes it after its first checkpoint",
            field="claimMode",
            remedy="Start from another savepoint. If that job no longer exists, use NO_CLAIM or delete the object _claimed",
        )
