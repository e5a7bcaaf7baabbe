"""Checksums that a slot notes of its files when it is told to stop because others follow, so that these need not compute them again.

The slot has read or verified each of these files while it ran, and stops in good order: its files are as trustworthy as if it went on. RocksDB checks each
block that it reads. A slot that was killed leaves no notes, and every file of it is hashed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from statefulspark.checkpoint.formats.digests import CHECKSUM_PATTERN, FileDigest
from statefulspark.checkpoint.formats.packs import Mark, mark_of

VERSION: Final = 1
TRUSTED_S: Final = 120.0
"""Slots that follow start within seconds. Older notes are not used: a slot may have been killed while it restored, perhaps because of a bad file."""

_NAME: Final = "digests.json"
_BYTES_MAX: Final = 64 << 20


class _NotedFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    """Relative to the working folder."""
    size_bytes: int
    modified_ns: int
    inode: int
    checksum: str = Field(pattern=CHECKSUM_PATTERN)


class _Notes(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    files: tuple[_NotedFile, ...]


def note_digests(folder: Path, store: Path, files: Mapping[str, FileDigest]) -> None:
    """Note the digests of a closed store's files. Does nothing if the disk refuses: the files are hashed then.

    Args:
        folder: The slot's working folder.
        store: Folder of the store, in it.
        files: Digests of files that the store does not change any more, by name; those that are gone are left out.
    """
    noted = []
    for name, digest in files.items():
        with suppress(OSError):
            status = (store / name).lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size == digest.size_bytes:
                path = (store / name).relative_to(folder).as_posix()
                mark = {"size_bytes": status.st_size, "modified_ns": status.st_mtime_ns, "inode": status.st_ino}
                noted.append(_NotedFile(path=path, **mark, checksum=digest.checksum))
    with suppress(OSError):
        # Under its name only once it is whole.
        new = folder / f"new-{_NAME}"
        new.write_text(_Notes(version=VERSION, files=tuple(noted)).model_dump_json(), encoding="utf-8")
        new.rename(folder / _NAME)


def noted_digests(folder: Path, *, now_s: Callable[[], float] = time.time) -> dict[Mark, FileDigest]:
    """Return the digests that the slot of a working folder has noted, for files that are unchanged since; none if the notes are old, damaged, or of another version."""
    notes = _read(folder, now_s())
    found: dict[Mark, FileDigest] = {}
    for file in notes.files if notes is not None and notes.version == VERSION else ():
        with suppress(OSError, ValueError):
            status = (folder / file.path).lstat()
            if stat.S_ISREG(status.st_mode) and mark_of(status) == (file.size_bytes, file.modified_ns, file.inode):
                found[mark_of(status)] = FileDigest(file.size_bytes, file.checksum)
    return found


def forget_digests(folders: Sequence[Path]) -> None:
    """Delete the notes: a slot that starts from these folders later hashes their files."""
    for folder in folders:
        with suppress(OSError):
            (folder / _NAME).unlink()


def _read(folder: Path, now_s: float) -> _Notes | None:
    try:
        file = os.open(folder / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        with os.fdopen(file, "rb") as reader:
            status = os.fstat(file)
            is_fit = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_size <= _BYTES_MAX
            if not is_fit or not 0 <= now_s - status.st_mtime <= TRUSTED_S:
                return None
            return _Notes.model_validate_json(reader.read(_BYTES_MAX))
    except (OSError, ValidationError):
        return None
