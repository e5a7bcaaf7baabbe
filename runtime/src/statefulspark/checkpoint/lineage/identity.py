"""The identity of a job's folder: whose it is, and how many key groups its state has."""

from __future__ import annotations

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import decode_document, encode_document
from statefulspark.checkpoint.formats.records import JobIdentity
from statefulspark.errors import ConflictError, NotRestorableError
from statefulspark.storage.base import ObjectStore


def ensure_job(store: ObjectStore, name: str, max_parallelism: int) -> JobIdentity:
    """Create the identity of a job folder, or check that it is this job's.

    Args:
        store: Opened at the job folder.
        name: Name of the job.
        max_parallelism: Number of key groups, fixed for the job's life.

    Raises:
        NotRestorableError: The folder is another job's, or the number of key groups was another one.
        CorruptDataError: The identity is damaged.
    """
    wanted = JobIdentity(name=name, max_parallelism=max_parallelism)
    try:
        store.put_if_absent(paths.JOB_KEY, encode_document("job", wanted))
    except ConflictError:
        path = paths.url_of(store.url, paths.JOB_KEY)
        found = decode_document(store.get(paths.JOB_KEY), "job", JobIdentity, path=path)
        if found.name != name:
            raise NotRestorableError(
                f"{store.url} belongs to the job {found.name!r}, not to {name!r}",
                field="checkpointing.dir",
                remedy="Give each job its own directory or name; to start from another job's state, name its checkpoint or savepoint.",
            ) from None
        if found.max_parallelism != max_parallelism:
            raise NotRestorableError(
                f"the job was started with {found.max_parallelism} key groups, not {max_parallelism}",
                field="maxParallelism",
                remedy=f"Set maxParallelism to {found.max_parallelism}, or write a savepoint with other key groups by `statefulspark rewrite --max-parallelism`.",
            ) from None
    return wanted


def job_name(store: ObjectStore) -> str:
    """Return the name of the job whose folder this is.

    Args:
        store: Opened at the job folder, which has an identity.

    Raises:
        CorruptDataError: The identity is damaged.
    """
    return decode_document(store.get(paths.JOB_KEY), "job", JobIdentity, path=paths.url_of(store.url, paths.JOB_KEY)).name
