"""Folders and temporary files of the local store: syncs them, removes those of dead writers, and prunes empty folders."""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from statefulspark.storage.keys import TEMPORARY_PREFIX

_RACES_MAX = 1000
"""Number of times a folder may be deleted before its first use; more is an error rather than a race with a prune."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

STALE_S = 3600.0
"""A temporary file not written to for so long has lost its writer (every write of a living one moves its time)."""


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make ``folder`` and its parents so that they survive a power loss; ``mode`` is that of those that are missing, less the umask."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for step in reversed(missing):
        try:
            step.mkdir(mode)
        except FileExistsError:
            # Vanished again means a concurrent prune: the sync below then finds nothing, the caller's use of it tells.
            if step.exists() and not step.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "a file exists where a folder is needed", str(step)) from None
        sync_folder(step.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable; a folder that was pruned meanwhile has nothing to keep."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def temporary_file(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Give a new temporary file in ``folder`` (made when absent); whatever still has that name at the end is removed."""
    path, stream = _create(folder)
    try:
        with stream:
            yield path, stream
    finally:
        path.unlink(missing_ok=True)


def _create(folder: Path) -> tuple[Path, BinaryIO]:
    path = folder / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
    for _ in range(_RACES_MAX):
        try:
            # A concurrent delete may prune the folder, or a parent of it, right after it was made.
            make_folder(folder)
            return path, path.open("xb")
        except FileNotFoundError:
            continue
    raise FileNotFoundError(errno.ENOENT, "the folder was repeatedly deleted", str(folder))


def open_below(root: Path, parts: Sequence[str]) -> int:
    """Opens the folder ``parts`` below ``root`` without following a symbolic link below the root; returns a descriptor to close.

    Raises:
        FileNotFoundError: It does not exist.
        NotADirectoryError: A part is a link or a file.
    """
    descriptor = os.open(root, _FOLDER)
    for part in parts:
        try:
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotADirectoryError(errno.ENOTDIR, "a link is not followed", part) from None
            raise
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def unlink_below(root: Path, parts: Sequence[str], names: Iterable[str]) -> None:
    """Deletes files of the folder ``parts`` below ``root``, and never what a link stands for: a link itself is deleted.

    Names that are folders stay; names that are not there are fine, and so is a folder that is not there, or is reached through a link.
    """
    try:
        descriptor = open_below(root, parts)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        for name in names:
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def prune(folders: Iterable[tuple[str, ...]], root: Path) -> None:
    """Remove ``folders``, each by its parts below ``root``, and their parents below ``root`` as far as they are empty."""
    for folder in sorted(set(folders), key=len, reverse=True):
        parts = folder
        while parts and _remove_if_empty(root, parts):
            parts = parts[:-1]


def _remove_if_empty(root: Path, parts: tuple[str, ...]) -> bool:
    try:
        parent = open_below(root, parts[:-1])
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        for _ in range(2):
            try:
                os.rmdir(parts[-1], dir_fd=parent)
            except FileNotFoundError:
                return True
            except OSError:
                # Not empty, or in use as a mount point: unfinished writes of dead writers are the one thing worth removing.
                if not _sweep(parts[-1], parent):
                    return False
            else:
                return True
    finally:
        os.close(parent)
    return False


def _sweep(name: str, parent: int) -> bool:
    """Remove stale temporary files when nothing else is in the folder ``name`` of ``parent``; True when something was removed."""
    now_s = time.time()
    try:
        folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:
        return False
    try:
        with os.scandir(folder) as found:
            entries = [(e.name, e.stat(follow_symlinks=False).st_mtime) for e in found]
        if not entries or any(not name.startswith(TEMPORARY_PREFIX) or now_s - written_s < STALE_S for name, written_s in entries):
            return False
        for each, _ in entries:
            with suppress(FileNotFoundError):
                os.unlink(each, dir_fd=folder)
    except OSError:
        return False
    finally:
        os.close(folder)
    return True
