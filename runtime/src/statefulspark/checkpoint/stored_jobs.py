"""Lists the jobs that have state below a checkpoint directory."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.checkpoint.catalog import OpenStore, checkpoint_ids, is_job_folder, newest
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import decode_document
from statefulspark.checkpoint.formats.records import JobIdentity
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    """One job's folder in storage."""

    url: str
    """URL of the folder."""
    job_id: str
    """Name of the folder: the job's name, or on Kubernetes the UID of its object."""
    name: str | None
    """Name in the manifest; None if the job's identity is missing or damaged."""
    max_parallelism: int | None
    checkpoints: int
    """Number of checkpoint folders, complete or not."""
    last_checkpoint: str | None
    """URL of the newest checkpoint whose files all exist; None if there is none."""
    batch: int | None
    """Last batch in that checkpoint; the changelogs may hold later ones."""
    parallelism: int | None
    created_ms: int | None
    """Time of that checkpoint, milliseconds since the epoch."""
    size_bytes: int
    """Everything in the folder: checkpoints, changelogs, and files that are about to be deleted."""
    problem: str | None
    """Reason for which the identity cannot be read, or that no checkpoint is complete although there are some."""


def list_jobs(url: str, open_store: OpenStore) -> list[StoredJob]:
    """List the jobs below ``url``, sorted by folder. Reads one checkpoint's metadata per job, and lists every object.

    Args:
        url: A checkpoint directory, or one job's folder.
        open_store: Opens the object store of a root URL.

    Raises:
        InvalidInputError: There are none.
        UnavailableError: Storage did not answer.
    """
    root = open_store(url)
    if is_job_folder(root):
        return [_stored_job(root)]
    folders = [open_store(paths.folder_url(root.url, name)) for name in sorted(root.list_folders(""))]
    found = [_stored_job(store) for store in folders if is_job_folder(store)]
    if not found:
        raise InvalidInputError(
            f"{root.url} holds no jobs", field="path", remedy="Pass a checkpoint directory (checkpointing.dir) or one job's folder in it"
        )
    return found


def _stored_job(store: ObjectStore) -> StoredJob:
    identity, problem = _identity(store)
    ids = checkpoint_ids(store)
    last = newest(store) if ids else None
    if last is None and ids and problem is None:
        problem = "no checkpoint is complete"
    return StoredJob(
        url=store.url,
        job_id=paths.folder_of(store.url)[1],
        name=identity.name if identity is not None else None,
        max_parallelism=identity.max_parallelism if identity is not None else None,
        checkpoints=len(ids),
        last_checkpoint=last.url if last is not None else None,
        batch=last.metadata.batch if last is not None else None,
        parallelism=last.metadata.parallelism if last is not None else None,
        created_ms=last.metadata.created_ms if last is not None else None,
        size_bytes=sum(info.size_bytes for info in store.list("")),
        problem=problem,
    )


def _identity(store: ObjectStore) -> tuple[JobIdentity | None, str | None]:
    path = paths.url_of(store.url, paths.JOB_KEY)
    try:
        return decode_document(store.get(paths.JOB_KEY), "job", JobIdentity, path=path), None
    except KeyError:
        return None, f"{path} is missing"
    except CorruptDataError as error:
        return None, str(error)
