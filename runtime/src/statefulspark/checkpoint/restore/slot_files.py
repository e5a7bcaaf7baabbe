"""Puts the files of an old slot's store into a folder: verified, from storage or from what is still on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import check_digest, digest_bytes
from statefulspark.checkpoint.formats.metadata import METADATA_NAME, FileRef, SlotState
from statefulspark.checkpoint.restore.local_files import LocalFiles, is_final
from statefulspark.checkpoint.restore.progress import RestoreProgress
from statefulspark.checkpoint.transfers import download_verified, in_parallel
from statefulspark.errors import CorruptDataError
from statefulspark.state.store.heap_store import ENTRIES_FILE
from statefulspark.state.store.own_backend import is_own_backend
from statefulspark.storage.local.os_errors import deleted_file


@dataclass(frozen=True, slots=True)
class SlotBytes:
    """Bytes of a slot's files by their origin."""

    downloaded: int = 0
    local: int = 0

    def __add__(self, other: SlotBytes) -> SlotBytes:
        """Return the sums."""
        return SlotBytes(self.downloaded + other.downloaded, self.local + other.local)


def fetch_slot(
    base: StoredCheckpoint,
    slot: SlotState,
    folder: Path,
    threads: int,
    *,
    progress: RestoreProgress | None = None,
    local: LocalFiles | None = None,
) -> SlotBytes:
    """Put the verified files of an old slot's store into a new folder, and inline entries as a file.

    Args:
        base: The checkpoint.
        slot: The old slot.
        folder: Does not exist yet.
        threads: Files that are fetched at once.
        progress: Counts them.
        local: Files on this machine, which are linked instead of downloaded. None downloads all.

    Raises:
        CorruptDataError: A file is damaged or missing.
        UnavailableError: Storage did not answer, or another program has deleted files in the folder.
    """
    check_has_files(base, slot)
    if slot.files or slot.inline is not None:
        folder.mkdir(parents=True)
    write_inline(base, slot, folder)

    def fetch(file: FileRef) -> SlotBytes:
        if local is not None and is_final(file.name, slot.backend) and local.link(file.name, file.digest, folder / file.name):
            if progress is not None:
                progress.add_local(file.size_bytes)
            return SlotBytes(local=file.size_bytes)
        download_verified(base.store, paths.resolve_reference(base.key, file.path), folder / file.name, file.digest)
        if progress is not None:
            progress.add(file.size_bytes)
        return SlotBytes(downloaded=file.size_bytes)

    # Large files first, so that the threads end together.
    files = sorted(slot.files, key=lambda file: -file.size_bytes)
    found = sum(in_parallel(fetch, files, threads), SlotBytes())
    check_downloaded(slot, folder)
    return found


def check_has_files(base: StoredCheckpoint, slot: SlotState) -> None:
    """Check that a slot's part of a checkpoint is there at all: a store that is opened without files is empty, and so would be the state.

    Raises:
        CorruptDataError: It has neither files nor inline entries. A backend of one's own may have none for an empty store.
    """
    if not slot.files and slot.inline is None and not is_own_backend(slot.backend):
        raise CorruptDataError(f"slot {slot.slot} has no files", path=f"{base.url}/{METADATA_NAME}")


def check_downloaded(slot: SlotState, folder: Path) -> None:
    """Check that the files of an old slot are in the folder, right before a store is opened there, which else may begin empty.

    Raises:
        UnavailableError: Another program has deleted one.
    """
    names = [file.name for file in slot.files] if slot.inline is None else [ENTRIES_FILE]
    for name in names:
        if not (folder / name).exists():
            raise deleted_file(folder / name)


def write_inline(base: StoredCheckpoint, slot: SlotState, folder: Path) -> None:
    """Write a slot's inline entries, if it has some, to the file by which a store opens them.

    Raises:
        CorruptDataError: They are damaged.
    """
    if slot.inline is not None:
        check_digest(digest_bytes(slot.inline.data, slot.inline.digest.algorithm), slot.inline.digest, path=f"{base.url}/{METADATA_NAME}")
        (folder / ENTRIES_FILE).write_bytes(slot.inline.data)
