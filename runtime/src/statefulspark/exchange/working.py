"""The folder on the local disk in which a slot works.

A process that was killed leaves its folder behind, so whoever comes next removes it. That it is dead is told by a lock on the folder, which
the system gives up with the process: process numbers say nothing where executors in several containers share a folder of their node.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from statefulspark.storage.os_errors import WORKING_FIELD, translated


@dataclass(frozen=True, slots=True)
class WorkingFolder:
    """A fresh folder, this process's own until `close` or its end."""

    path: Path
    lock: int
    """Descriptor of the folder, which carries the lock."""

    def close(self) -> None:
        """Remove the folder with all in it; what cannot be removed, the next slot removes."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def open_working_folder(root: Path, slot: int, *, field: str = WORKING_FIELD) -> WorkingFolder:
    """Make a folder below ``root`` for slot ``slot``, and remove those of slots that have died. ``field`` is where ``root`` was chosen.

    Raises:
        InvalidInputError: ``root`` cannot be made or written.
        UnavailableError: The disk is full or fails.
    """
    with translated(root, field):
        return _open(root, slot)


def _open(root: Path, slot: int) -> WorkingFolder:
    root.mkdir(parents=True, exist_ok=True)
    for old in root.glob("slot-*"):
        _remove_if_dead(old)
    # It gets the name that others look for only when it is locked.
    new = Path(tempfile.mkdtemp(prefix="new-", dir=root))
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    _locked(lock)
    path = new.rename(root / f"slot-{slot}-{new.name.removeprefix('new-')}")
    return WorkingFolder(path, lock)


def _remove_if_dead(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        if _locked(lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _locked(folder: int) -> bool:
    """Take the lock if nobody has it. File systems without locks never give it, so nothing is removed there."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
