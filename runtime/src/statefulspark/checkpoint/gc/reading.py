"""Reads from a job's folder what decides which objects are garbage. Refuses a folder in which that is not certain.

The job may run meanwhile. The listing comes first: whatever is written later is not in it. A checkpoint is published, and the one before it
deleted, at any moment. So checkpoints are listed until two listings are equal. In each, checkpoints are looked up in ascending order: the
files of one that is gone are referenced by a later one, if they are still referenced at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass

from statefulspark.checkpoint.catalog import OpenStore, damaged_checkpoints, load
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import Document, Kind, decode_document
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.formats.records import AttemptClaim, AttemptStart, BatchRecord, JobIdentity
from statefulspark.checkpoint.gc.plan import JobFolder
from statefulspark.checkpoint.lineage.lineage import Lineage, read_record, resolve_left
from statefulspark.checkpoint.lineage.starts import newest_start
from statefulspark.checkpoint.transfers import in_parallel, read_again
from statefulspark.errors import ConflictError, CorruptDataError, IncompatibleFormatError, InvalidInputError
from statefulspark.storage.base import ObjectInfo, ObjectStore

_TRIES = 5
"""Number of times that a changing folder is read again."""
_LISTINGS_MAX = 20
_THREADS = 8


@dataclass(frozen=True, slots=True)
class ReadFolder:
    """A job's folder, and which of the objects that a restore needs are not in it."""

    contents: JobFolder
    missing: Mapping[str, str]
    """Keys of missing objects, each with the key of an object that references it."""


def check_is_job_folder(store: ObjectStore) -> None:
    """Check that a folder is that of exactly one job.

    Raises:
        InvalidInputError: It is none.
        CorruptDataError: The object ``_job`` is damaged, or (IncompatibleFormatError) of an unknown version.
        UnavailableError: Storage did not answer.
    """
    path = paths.url_of(store.url, paths.JOB_KEY)
    try:
        read_again(lambda: decode_document(store.get(paths.JOB_KEY), "job", JobIdentity, path=path))
    except KeyError:
        raise InvalidInputError(
            f"{store.url} is not a job's directory, because it contains no object {paths.JOB_KEY}",
            field="path",
            remedy="Pass the directory of one job: <checkpointing.dir>/<job id>.",
        ) from None


def read_folder(store: ObjectStore, *, open_store: OpenStore) -> ReadFolder:
    """Read a job's folder, again if the job changes it meanwhile.

    Args:
        store: Opened at the job's folder.
        open_store: Opens the store of the lineage's origin in another folder.

    Raises:
        InvalidInputError: It is no job's folder.
        IncompatibleFormatError: A later release wrote one of its objects.
        CorruptDataError: An object that names others is damaged or missing.
        ConflictError: The folder changes too fast.
        UnavailableError: Storage did not answer.
    """
    check_is_job_folder(store)
    known: dict[str, CheckpointMetadata] = {}
    for _ in range(_TRIES - 1):
        try:
            found = _read(store, open_store, known)
        except IncompatibleFormatError:
            raise
        except CorruptDataError:
            continue  # The job's retention may have deleted a checkpoint or a record between two reads.
        if not found.missing:
            return found
    return _read(store, open_store, known)


def read_snapshots(store: ObjectStore, known: MutableMapping[str, CheckpointMetadata]) -> dict[str, CheckpointMetadata]:
    """Return all complete checkpoints and savepoints in a job's folder, by the key of their ``_metadata``.

    Args:
        store: Opened at the job's folder.
        known: Those read before, which never change; new ones are added.

    Raises:
        CorruptDataError: One is damaged, or (IncompatibleFormatError) of an unknown version.
        ConflictError: Checkpoints come and go faster than they can be listed.
        UnavailableError: Storage did not answer.
    """
    before: list[str] | None = None
    for _ in range(_LISTINGS_MAX):
        keys = _metadata_keys(store)
        if keys == before and known.keys() >= set(keys):
            return {key: known[key] for key in keys}
        for key in keys:
            if key not in known:
                try:
                    known[key] = load(store, key).with_inline_of(None)
                except InvalidInputError:
                    continue  # Retention deleted it after the listing.
        before = keys
    raise ConflictError(f"{store.url}: checkpoints change while they are listed. Run the command again later")


def check_versions(store: ObjectStore, keys: Iterable[str]) -> None:
    """Refuse batch records that a later release has written: it may know who references them.

    Args:
        store: Opened at the job's folder.
        keys: Of batch records.

    Raises:
        CorruptDataError: One is damaged, or (IncompatibleFormatError) of an unknown version.
        UnavailableError: Storage did not answer.
    """
    in_parallel(lambda key: _check_document(store, key, "batch", BatchRecord), keys, _THREADS)


def _read(store: ObjectStore, open_store: OpenStore, known: MutableMapping[str, CheckpointMetadata]) -> ReadFolder:
    objects = store.list("")
    _check_attempts(store, objects)
    snapshots = read_snapshots(store, known)
    lineage = resolve_left(store, open_store=open_store, marked=damaged_checkpoints(store))
    start = newest_start(store)
    stored = {info.key for info in objects}
    keys = {*lineage.record_keys, *(stored.intersection(start.records) if start is not None else ())}
    records = dict(in_parallel(lambda key: (key, read_record(store, key)), sorted(keys), _THREADS))
    contents = JobFolder(
        objects=objects,
        snapshots=snapshots,
        records=records,
        attempt=lineage.attempt,
        since=min([lineage.since, *(record.attempt for record in records.values())]),
        last_batch=_last_batch(lineage),
    )
    needed = _needed(contents, lineage)
    absent = [key for key in needed if key not in stored]
    gone = in_parallel(lambda key: store.head(key) is None, absent, _THREADS)
    return ReadFolder(contents, {key: needed[key] for key, is_gone in zip(absent, gone, strict=True) if is_gone})


def _last_batch(lineage: Lineage) -> int:
    numbers = (paths.attempt_and_batch(key) for key in lineage.record_keys)
    batch = lineage.base.metadata.batch if lineage.base is not None else -1
    return max((found[1] for found in numbers if found is not None), default=batch)


def _needed(contents: JobFolder, lineage: Lineage) -> dict[str, str]:
    """Objects without which a checkpoint, a savepoint or the job cannot be restored, each with the key of one that references it."""
    found = {paths.resolve_reference(key, file.path): key for key, metadata in contents.snapshots.items() for file in metadata.files()}
    by_batch = {paths.attempt_and_batch(key): key for key in lineage.record_keys}
    after = lineage.base.metadata.replay_after if lineage.base is not None else -1
    for record in lineage.records:
        key = by_batch[record.attempt, record.batch]
        found |= {ack.key: key for ack in record.acks if ack.batch > after} | {pack.key: key for pack in record.spark_state}
    return found


def _metadata_keys(store: ObjectStore) -> list[str]:
    """Keys of all ``_metadata``, those of checkpoints in ascending order."""
    folders = store.list_folders("")
    numbered = sorted((number, folder) for folder in folders if (number := paths.checkpoint_id_of(folder)) is not None)
    ordered = [folder for _, folder in numbered] + [folder for folder in folders if paths.checkpoint_id_of(folder) is None]
    return [key for key in map(paths.metadata_key, ordered) if store.head(key) is not None]


def _check_attempts(store: ObjectStore, objects: Iterable[ObjectInfo]) -> None:
    """Refuse claims and starts that are damaged or of an unknown version, also those of earlier attempts."""

    def check(info: ObjectInfo) -> None:
        found = paths.attempt_of(info.key)
        if found is not None and found[1]:
            _check_document(store, info.key, "attempt-start", AttemptStart)
        elif found is not None:
            _check_document(store, info.key, "attempt", AttemptClaim)

    in_parallel(check, (info for info in objects if info.key.startswith(paths.ATTEMPTS_PREFIX)), _THREADS)


def _check_document(store: ObjectStore, key: str, kind: Kind, model: type[Document]) -> None:
    try:
        read_again(lambda: decode_document(store.get(key), kind, model, path=paths.url_of(store.url, key)))
    except KeyError:
        return  # The job's retention deleted it.
