"""Converts a checkpoint or savepoint into a canonical savepoint (docs/rfcs/0010-canonical-savepoints.md).

The origin is only read. Everything is written below a new name, data first (`state_tables.canonical.files`) and ``_metadata`` last, so that a
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
from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.state_tables.canonical.files import write_unpublished
from statefulspark.state_tables.read.key_filter import KeyFilter
from statefulspark.state_tables.write.contents import Contents
from statefulspark.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedSavepoint:
    """Result of a conversion.

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
        UnavailableError: Storage did not answer, or the local disk is full. Nothing was published, unless the text names a savepoint.
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
    publication = Publication(target, folder)
    try:
        written = write_unpublished(
            origin, target, folder, open_store=open_store, key_filter=key_filter, contents=contents, progress=progress
        )
        url = publication.publish(written.metadata)
    except BaseException:
        with suppress(StatefulSparkError):
            publication.discard()
        raise
    return ConvertedSavepoint(url=url, metadata=written.metadata, entries=written.entries, without_table=written.without_table)


@dataclass(slots=True)
class Publication:
    """Makes what a conversion has written a savepoint, or deletes it.

    Attributes:
        target: Opened at the folder above the savepoint's.
        folder: Name of the savepoint's folder, which only that conversion writes to.
        is_uncertain: True if the write of ``_metadata`` began, and storage has not said how it ended. It may make that write at any time.
    """

    target: ObjectStore
    folder: str
    is_uncertain: bool = False

    def publish(self, metadata: CheckpointMetadata, check: Callable[[], None] = lambda: None) -> str:
        """Write ``_metadata``; return the URL of the savepoint.

        Args:
            metadata: Its contents.
            check: Called just before; raises if nobody wants the savepoint any more.

        Raises:
            CorruptDataError: A file is missing or has another size; nothing was published.
            UnavailableError: Storage did not answer; the text says so if the savepoint may be complete.
        """

        def begin() -> None:
            check()
            self.is_uncertain = True

        try:
            url = publish(self.target, metadata, self.folder, before_write=begin)
        except UnavailableError as error:
            if not self.is_uncertain:
                raise
            place = paths.folder_url(self.target.url, self.folder)
            raise UnavailableError(
                f"{error}. {place} may be complete: `statefulspark verify` says so. Delete it if you do not need it",
                retry_after_s=error.retry_after_s,
            ) from error
        self.is_uncertain = False
        return url

    def discard(self) -> None:
        """Delete the files, unless a ``_metadata`` may appear that names them. Repeating it is fine.

        What makes it a savepoint goes first, for a savepoint that was published and then withdrawn.

        Raises:
            UnavailableError: Storage did not answer; some files may be left, but no ``_metadata`` without its files.
        """
        if self.is_uncertain:
            return
        names = [info.key for info in self.target.list(f"{self.folder}/")]
        self.target.delete([paths.metadata_key(self.folder)])
        self.target.delete(names)
