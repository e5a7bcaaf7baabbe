"""Detects deleted starts and batch records by the traces that drivers left in a job folder.

Only a few objects determine the lineage: the newest start, and the records after the base. If one of them were deleted, older objects would
appear to be the latest state, and batches would be lost silently. So the lineage is first compared with all other traces of drivers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from statefulspark.checkpoint.catalog import checkpoint_ids, load
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.bundle import decode_bundle
from statefulspark.checkpoint.formats.documents import decode_document
from statefulspark.checkpoint.formats.records import AttemptClaim, AttemptStart, BatchRecord
from statefulspark.checkpoint.lineage.changelog_folders import attempts_with_changelogs, last_batch_with_changelogs
from statefulspark.checkpoint.lineage.fencing import ATTEMPTS_KEPT
from statefulspark.checkpoint.lineage.rewind import is_jump
from statefulspark.checkpoint.transfers import read_again
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.storage.base import ObjectStore

_REMEDY = "Restore the object, or start from a checkpoint or savepoint with --from PATH; rows after it are processed again"
_LATE_UPLOAD_S: Final = 3600.0
"""Time after the removal of a job's state within which an upload may arrive. A slot stops after minutes without its coordinator."""


def check_newest_start(store: ObjectStore, newest: int) -> None:
    """Raise if a later attempt ran than the newest one whose start is stored.

    A driver that died before its start may have left a claim, the record of a jump, and a copy of the checkpoint that it was to start from.

    Args:
        store: Opened at the job folder.
        newest: The newest attempt whose start is stored, 0 for none.

    Raises:
        CorruptDataError: A later attempt ran; the text names its trace and the missing start.
        UnavailableError: Storage did not answer.
    """
    trace = next(_traces_after(store, newest), None)
    if trace is not None:
        attempt, key = trace
        raise CorruptDataError(
            f"the start record of attempt {attempt} is missing, although the attempt wrote {key}. {_REMEDY}",
            path=paths.url_of(store.url, paths.attempt_start_key(attempt)),
        )


def check_last_record(store: ObjectStore, *, since: int, last: int) -> None:
    """Raise if a batch was processed later than the last one that a record or the base names.

    Args:
        store: Opened at the job folder.
        since: The oldest attempt that may have run a batch of the lineage.
        last: The last batch that the lineage knows.

    Raises:
        CorruptDataError: There are changelogs of a later batch; the text names the missing record.
        UnavailableError: Storage did not answer.
    """
    for attempt in reversed(attempts_with_changelogs(store)):
        batch = last_batch_with_changelogs(store, attempt)
        if attempt >= since and batch > last:
            raise CorruptDataError(
                f"the record of batch {batch} is missing, although its changelogs are stored. {_REMEDY}",
                path=paths.url_of(store.url, paths.batch_key(attempt, batch)),
            )


def check_nothing_left(store: ObjectStore, start: AttemptStart) -> None:
    """Raise if the newest attempt had state, of which neither a checkpoint nor a batch record is left.

    Not every file of a checkpoint proves that. A checkpoint that was abandoned before the first batch leaves files, and so does a driver that
    died while it copied what it was to start from. Slots that were presumed dead end their uploads after the job's state has been removed.

    Args:
        store: Opened at the job folder.
        start: Of the newest attempt.

    Raises:
        CorruptDataError: It had.
        UnavailableError: Storage did not answer.
    """
    traces = (*start.checkpoints, *start.records, *_files_of_batches(store, start.attempt))
    if traces:
        raise CorruptDataError(
            f"{traces[0]} shows that the job had state, but neither a checkpoint nor a batch record exists. {_REMEDY}", path=store.url
        )


def _files_of_batches(store: ObjectStore, attempt: int) -> Iterator[str]:
    """Keys of files that only a checkpoint of a committed batch has, written by ``attempt``, which has the newest start."""
    objects = store.list("")
    attempts = {found: info.modified_s for info in objects if (found := paths.attempt_of(info.key)) is not None}
    after_s = max(attempts.get((attempt, True), 0.0), _late_uploads_until_s(attempts))
    # Objects written after the next claim are that driver's copy of a checkpoint.
    until_s = min((at_s for (number, is_start), at_s in attempts.items() if number > attempt and not is_start), default=math.inf)
    for info in objects:
        if after_s < info.modified_s <= until_s and (info.key.startswith(paths.SHARED_PREFIX) or _is_bundle_of_batch(store, info.key)):
            yield info.key


def _late_uploads_until_s(attempts: Mapping[tuple[int, bool], float]) -> float:
    """Until when, in seconds since the epoch, uploads from before the removal of the job's state may arrive; 0.0 if it was not removed.

    Only a removal deletes all claims before its own while they are few.

    Args:
        attempts: Time of the last write by number, and whether it is the start (else the claim).
    """
    numbers = [number for number, is_start in attempts if not is_start]
    oldest, newest = min(numbers, default=1), max(numbers, default=1)
    removed = oldest > 1 and newest - oldest < ATTEMPTS_KEPT - 1
    return attempts.get((oldest, True), 0.0) + _LATE_UPLOAD_S if removed else 0.0


def _is_bundle_of_batch(store: ObjectStore, key: str) -> bool:
    """True for the bundle in the folder of a checkpoint without ``_metadata``, if it has the commit of a batch."""
    folder, _, name = key.partition("/")
    if paths.checkpoint_id_of(folder) is None or not paths.is_bundle(name) or store.head(paths.metadata_key(folder)) is not None:
        return False
    try:
        files = decode_bundle(store.get(key), path=paths.url_of(store.url, key))
    except KeyError:
        return False
    except CorruptDataError:
        return True
    return any(path.startswith("commits/") for path in files)


def _traces_after(store: ObjectStore, newest: int) -> Iterator[tuple[int, str]]:
    """Attempt and key of what attempts after ``newest`` can only have written after their start."""
    for info in store.list(paths.BATCHES_PREFIX):
        found = paths.attempt_and_batch(info.key)
        if found is not None and found[0] > newest and not _is_jump(store, info.key):
            yield found[0], info.key
    for attempt in attempts_with_changelogs(store):
        if attempt > newest:
            yield attempt, f"{paths.CHANGELOG_PREFIX}{attempt:08d}/"
    for number in checkpoint_ids(store):
        key = paths.metadata_key(paths.checkpoint_folder(number))
        try:
            metadata = load(store, key)
        except (CorruptDataError, InvalidInputError):
            continue  # unfinished or damaged, so its attempt is unknown
        if metadata.attempt > newest and metadata.created_ms != _claimed_ms(store, metadata.attempt):
            yield metadata.attempt, key


def _is_jump(store: ObjectStore, key: str) -> bool:
    path = paths.url_of(store.url, key)
    return is_jump(read_again(lambda: decode_document(store.get(key), "batch", BatchRecord, path=path)))


def _claimed_ms(store: ObjectStore, attempt: int) -> int | None:
    """When the attempt was claimed, which is also the time of the copy that it makes before its start."""
    key = paths.attempt_key(attempt)
    try:
        claim = read_again(lambda: decode_document(store.get(key), "attempt", AttemptClaim, path=paths.url_of(store.url, key)))
    except KeyError:
        return None
    return claim.created_ms
