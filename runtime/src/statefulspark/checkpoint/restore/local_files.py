"""LocalFiles: files of a checkpoint that earlier slots of the job left on this machine.

A file is used only if name, size and checksum are those of the checkpoint, so it does not matter which slot left it, nor when. The checksum is computed,
unless the slot that left the file has stopped in good order just now and noted it (`local_digests`). The file is linked, not copied: the name in the new
store and the old name are the same file. That is safe only for files that no store changes after it has written them.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from statefulspark.checkpoint.formats.digests import FileDigest, digest_file
from statefulspark.checkpoint.formats.packs import Mark, mark_of
from statefulspark.checkpoint.restore.local_digests import forget_digests, noted_digests
from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.entries import HEAP_TIMERS_FILE
from statefulspark.state.store.heap_store import ENTRIES_FILE

Restored = TypeVar("Restored")

_DEPTH_MAX: Final = 4
"""A slot's store lies two folders below the slot's."""
_FILES_MAX: Final = 200_000
"""So many files are looked at, whatever lies in the folders."""

_FINAL_SUFFIX: Final = ".sst"
_FINAL_NAMES: Final = frozenset({ENTRIES_FILE, HEAP_TIMERS_FILE})
_FINAL_BACKENDS: Final = frozenset({"rocksdb", "filesystem"})


def is_final(name: str, backend: str) -> bool:
    """Return True for a file that no store of this kind changes once it is written; RocksDB appends to its manifest, and a backend of one's own may do anything."""
    return backend in _FINAL_BACKENDS and (name.endswith(_FINAL_SUFFIX) or name in _FINAL_NAMES)


class LocalFiles:
    """Finds and links files of dead slots.

    Args:
        folders: Their folders. The caller keeps other processes from writing to them; they may vanish.
        trust_notes: Use the checksums that slots have noted. False computes all.

    Attributes:
        has_trusted: True once a file was linked whose checksum was noted and not computed.
    """

    def __init__(self, folders: Sequence[Path], *, trust_notes: bool = True) -> None:
        self.has_trusted = False
        self._noted: dict[Mark, FileDigest] = {}
        for folder in folders if trust_notes else ():
            self._noted.update(noted_digests(folder))
        self._found: dict[tuple[str, int], list[Path]] = {}
        seen = 0
        for folder in folders:
            for path, size_bytes in _regular_files(folder, _DEPTH_MAX):
                if seen >= _FILES_MAX:
                    return
                seen += 1
                self._found.setdefault((path.name, size_bytes), []).append(path)

    def link(self, name: str, expected: FileDigest, target: Path) -> bool:
        """Link a file to ``target``, which does not exist, if there is one with this name, size and checksum.

        The checksum is that of the new name: what the old name is replaced by meanwhile does not matter. Errors of the disk count as another
        content, since storage has the file too.

        Returns:
            True if ``target`` is the file. If False, nothing is left there.
        """
        return any(self._linked(path, expected, target) for path in self._found.get((name, expected.size_bytes), ()))

    def _linked(self, path: Path, expected: FileDigest, target: Path) -> bool:
        try:
            os.link(path, target, follow_symlinks=False)
        except OSError:
            return False
        try:
            status = target.lstat()
            if stat.S_ISREG(status.st_mode):
                if self._noted.get(mark_of(status)) == expected:  # the mark has the size
                    self.has_trusted = True
                    return True
                if digest_file(target, expected.algorithm) == expected:
                    return True
        except OSError:
            pass  # an unreadable file is as good as none
        with suppress(OSError):
            target.unlink()
        return False


def with_local_files(folders: Sequence[Path], directory: Path, restore: Callable[[LocalFiles], Restored]) -> Restored:
    """Restore with the files of dead slots, and delete the checksums that these have noted: a later restore from their files computes them.

    Args:
        folders: As in `LocalFiles`.
        directory: Where ``restore`` puts its files. It is emptied before a second call.
        restore: Called once more without the noted checksums if it finds damaged data: that may be a damaged local file, not a damaged checkpoint.
    """
    local = LocalFiles(folders)
    try:
        return restore(local)
    except CorruptDataError:
        if not local.has_trusted:
            raise
        shutil.rmtree(directory, ignore_errors=True)
        return restore(LocalFiles(folders, trust_notes=False))
    finally:
        forget_digests(folders)


def _regular_files(folder: Path, depth: int) -> Iterator[tuple[Path, int]]:
    """Yield regular files of this user with their sizes. Links are not followed: they could lead to files of others."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        if depth > 0:
                            yield from _regular_files(Path(entry.path), depth - 1)
                    elif entry.name.endswith(_FINAL_SUFFIX) or entry.name in _FINAL_NAMES:
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                            yield Path(entry.path), status.st_size
    except OSError:
        return
