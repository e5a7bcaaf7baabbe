"""The folder on local disk in which a slot works.

A killed process leaves its folder behind, so the next process removes it. A lock on the folder tells whether its process is alive, because
the system releases it when the process ends. Process ids cannot tell, where executors in several containers share a folder of their node.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark.storage.local.os_errors import WORKING_FIELD, translated

_SCRATCH_PREFIX: Final = "statefulspark-reader-"
"""Not ``statefulspark-inspect-``: a release that takes no lock on such folders may read on the same machine."""

_LOCAL_JOB_PREFIX: Final = "statefulspark-local-"


@dataclass(slots=True)
class WorkingFolder:
    """A fresh folder, this process's own until `close` or its end."""

    path: Path
    lock: int | None
    """Descriptor of the folder, which carries the lock; None once it is closed."""

    def leave(self) -> None:
        """Leave the folder with all in it to the slots that follow, as a process does that is killed."""
        lock, self.lock = self.lock, None
        if lock is not None:
            os.close(lock)

    def close(self) -> None:
        """Remove the folder with all in it. The next slot removes what cannot be removed now. A second call does nothing."""
        lock, self.lock = self.lock, None
        if lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)


def private_folder(path: Path, *, field: str = WORKING_FIELD) -> Path:
    """Return ``path`` as a folder that only this user can write, made if it is missing.

    Any user may create folders in ``/tmp``: a user who creates this one first could read state, or replace the files that a slot opens.

    Raises:
        InvalidInputError: It belongs to another user, is a link, or others may write to it.
    """
    with translated(path, field):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidInputError(
            f"{path} is not a folder that only this user can write",
            field=field,
            remedy="Remove it, or choose another place with spec.stateBackend.rocksdb.localDir or TMPDIR",
        )
    return path


def open_working_folder(root: Path, slot: int, *, field: str = WORKING_FIELD) -> WorkingFolder:
    """Make a folder below ``root`` for slot ``slot``. Those of slots that have died stay: see `DeadFolders`. ``field`` is where ``root`` was chosen.

    Raises:
        InvalidInputError: ``root`` cannot be made or written.
        UnavailableError: The disk is full or fails.
    """
    with translated(root, field):
        return _open(root, slot)


def open_socket_folder(whose: int | str) -> WorkingFolder:
    """Make a folder for a process's Unix socket, and remove those of processes that have died. ``whose`` begins its name. Its path is short: a socket's has about 100 bytes.

    Raises:
        InvalidInputError: The system's folder for temporary files cannot be written.
        UnavailableError: The disk is full or fails.
    """
    root = Path(tempfile.gettempdir())
    with translated(root, WORKING_FIELD):
        return _fresh(root, "ssp-", whose)


def open_scratch_folder() -> WorkingFolder:
    """Make a folder for files of a checkpoint that is read, and remove those of processes that have died.

    Raises:
        InvalidInputError: The system's folder for temporary files cannot be written.
        UnavailableError: The disk is full or fails.
    """
    root = Path(tempfile.gettempdir())
    with translated(root, WORKING_FIELD):
        return _fresh(root, _SCRATCH_PREFIX, os.getpid())


def local_job_path() -> Path:
    """Return a path for the folder of a job in a notebook. Nobody else can guess it, so nobody can create it first."""
    return Path(tempfile.gettempdir()) / f"{_LOCAL_JOB_PREFIX}{secrets.token_hex(12)}"


def open_local_job_folder(path: Path) -> WorkingFolder:
    """Make the folder that `local_job_path` has named, and remove those of processes that have died.

    Raises:
        InvalidInputError: The system's folder for temporary files cannot be written.
        UnavailableError: The disk is full or fails.
    """
    with translated(path.parent, WORKING_FIELD):
        return _fresh(path.parent, _LOCAL_JOB_PREFIX, path.name.removeprefix(_LOCAL_JOB_PREFIX), exactly=True)


def _open(root: Path, slot: int) -> WorkingFolder:
    root.mkdir(parents=True, exist_ok=True)
    return _locked_folder(root, "slot-", slot)


def _fresh(root: Path, prefix: str, whose: int | str, *, exactly: bool = False) -> WorkingFolder:
    for old in root.glob(f"{prefix}*"):
        remove_if_dead(old)
    return _locked_folder(root, prefix, whose, exactly=exactly)


def _locked_folder(root: Path, prefix: str, whose: int | str, *, exactly: bool = False) -> WorkingFolder:
    # It gets its final name, which other processes search for, only after it is locked.
    new = Path(tempfile.mkdtemp(prefix="new-", dir=root))
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    _locked(lock)
    path = new.rename(root / (f"{prefix}{whose}" if exactly else f"{prefix}{whose}-{new.name.removeprefix('new-')}"))
    return WorkingFolder(path, lock)


def remove_if_dead(folder: Path) -> None:
    """Delete a folder unless a process holds its lock."""
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
    """Try to take the lock. Always fails on file systems without locks, so nothing is removed there."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
