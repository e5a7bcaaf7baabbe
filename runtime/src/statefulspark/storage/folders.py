"""Folders and temporary files of the local store: syncs them, removes those of dead writers, and prunes empty folders."""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from statefulspark.storage.keys import TEMPORARY_PREFIX

_RACES_MAX = 1000
"""Number of times a folder may be deleted before its first use; more is an error rather than a race with a prune."""

STALE_S = 3600.0
"""A temporary file not written to for so long has lost its writer (every write of a living one moves its time)."""


def make_folder(folder: Path) -> None:
    """Make ``folder`` and its parents so that they survive a power loss."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for step in reversed(missing):
        try:
            step.mkdir()
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


def prune(folders: Iterable[Path], root: Path) -> None:
    """Remove ``folders`` and their parents below ``root`` as far as they are empty."""
    for folder in sorted(set(folders), key=lambda path: len(path.parts), reverse=True):
        current = folder
        while current != root and root in current.parents:
            if not _remove_if_empty(current):
                break
            current = current.parent


def _remove_if_empty(folder: Path) -> bool:
    for _ in range(2):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            # Not empty, or in use as a mount point: unfinished writes of dead writers are the one thing worth removing.
            if not _sweep(folder):
                return False
        else:
            return True
    return False


def _sweep(folder: Path) -> bool:
    """Remove stale temporary files when nothing else is in ``folder``; True when something was removed."""
    now_s = time.time()
    try:
        entries = list(os.scandir(folder))
        if not entries or any(not e.name.startswith(TEMPORARY_PREFIX) or now_s - e.stat().st_mtime < STALE_S for e in entries):
            return False
        for entry in entries:
            Path(entry.path).unlink(missing_ok=True)
    except OSError:
        return False
    return True
