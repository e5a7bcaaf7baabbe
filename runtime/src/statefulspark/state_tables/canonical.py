"""Converts a checkpoint or savepoint into a canonical savepoint (docs/rfcs/0010-canonical-savepoints.md).

The origin is only read. Everything is written below a new name, data first (`state_tables.canonical_files`) and ``_metadata`` last, so that a
conversion that is interrupted leaves no savepoint.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint, open_checkpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.write.publish import publish
from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark.state_tables.canonical_files import write_unpublished
from statefulspark.state_tables.contents import Contents
from statefulspark.state_tables.key_filter import KeyFilter
from statefulspark.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedSavepoint:
    """What a conversion has written.

    Attributes:
        url: The canonical savepoint.
        metadata: Its ``_metadata``.
        entries: Stored entries of keyed state, timers and raw keyed state.
        without_table: The states that have no table, by uid and name, and why. The savepoint has their entries.
    """

    url: str
    metadata: CheckpointMetadata
    entries: int
    without_table: dict[tuple[str, str], str]


def convert_to_canonical(
    url: str, target_url: str, *, open_store: OpenStore, progress: Callable[[str], None] = lambda _: None
) -> ConvertedSavepoint:
    """Write a canonical savepoint with the contents of a checkpoint or savepoint.

    Every stored entry is copied exactly, also what has expired and was not deleted yet. The local disk needs space for one slot's files three times.

    >>> convert_to_canonical("s3://bucket/savepoint-shop-1", "s3://bucket/canonical", open_store=open_store)  # doctest: +SKIP

    Args:
        url: A checkpoint's, savepoint's or job's folder; of a job, its newest complete checkpoint. It is only read.
        target_url: Folder in which the savepoint is made, under a new name.
        open_store: Opens the store of a URL.
        progress: Called with the name of each part before it is converted.

    Raises:
        InvalidInputError: There is no checkpoint, or it is a canonical savepoint.
        CorruptDataError: A file or an entry of the origin is damaged; the message names it. Nothing was published.
        UnavailableError: Storage did not answer, or the local disk is full; nothing was published.
    """
    origin = open_checkpoint(url, open_store)
    if origin.metadata.is_canonical:
        raise InvalidInputError(f"{origin.url} is canonical already", field="path", remedy="Use it as it is")
    return write_canonical(origin, target_url, open_store=open_store, progress=progress)


def write_canonical(
    origin: StoredCheckpoint,
    target_url: str,
    *,
    open_store: OpenStore,
    key_filter: KeyFilter | None = None,
    contents: Contents | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ConvertedSavepoint:
    """Write a canonical savepoint with the contents of any checkpoint or savepoint, without the keys of ``key_filter``.

    ``contents`` has what the states of ``origin.metadata`` hold; by default these are the files that it names. The other arguments and the
    errors are those of `convert_to_canonical`.
    """
    target = open_store(target_url)
    folder = paths.savepoint_folder(origin.metadata.job_id)
    try:
        written = write_unpublished(
            origin, target, folder, open_store=open_store, key_filter=key_filter, contents=contents, progress=progress
        )
        url = publish(target, written.metadata, folder)
    except BaseException:
        with suppress(StatefulSparkError):
            discard(target, folder)
        raise
    return ConvertedSavepoint(url=url, metadata=written.metadata, entries=written.entries, without_table=written.without_table)


def discard(target: ObjectStore, folder: str) -> int:
    """Delete what a conversion has written that was not published; return the number of its files. Repeating it is fine.

    What makes it a savepoint goes first, if its publication failed only in appearance.

    Args:
        target: Opened at the folder above the savepoint's.
        folder: Name of the savepoint's folder, which only that conversion writes to.

    Raises:
        UnavailableError: Storage did not answer; some files may be left, but no ``_metadata`` without its files.
    """
    names = [info.key for info in target.list(f"{folder}/")]
    target.delete([paths.metadata_key(folder)])
    target.delete(names)
    return len(names)
