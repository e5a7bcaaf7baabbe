"""DeadFolders: working folders of slots that have died, kept until the slots that replace them have linked what they can use.

A process that starts holds them by shared locks, so that no other process deletes them meanwhile; the lock of a living slot's folder is exclusive. What
stays is bounded: one folder per slot number, none while the disk is nearly full, none of another job, and none after `KEPT_S`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from statefulspark.storage.local.working_folder import remove_if_dead

OWN_KEPT_S = 30.0
"""So long a slot keeps the folder of its own number after it has restored: after a rescale, others that are still starting need it too."""
KEPT_S: Final = 600.0
"""A folder that no slot of its number has deleted is deleted after this time, by any slot that lives so long."""
FREE_SHARE_MIN: Final = 0.1
"""With less of the disk free, the files of dead slots are deleted at once."""

_OWNER: Final = "job"
_OWNER_BYTES_MAX: Final = 8192
_SLOT: Final = re.compile(r"slot-(\d+)-")


def mark_owner(folder: Path, job: str) -> None:
    """Note in a working folder which job it belongs to. ``job`` is the URL of the job's folder in storage.

    Raises:
        OSError: The disk is full or fails.
    """
    (folder / _OWNER).write_text(job, encoding="utf-8")


class DeadFolders:
    """Holds the folders of dead slots of one job until `release`, and deletes them.

    Args:
        root: Folder with the working folders.
        job: See `mark_owner`. Folders of others are deleted.
        keep: False deletes all.
        now_s: A monotonic clock.
        free_share: Returns the share of the disk at a path that is free.
    """

    def __init__(
        self,
        root: Path,
        job: str,
        *,
        keep: bool = True,
        now_s: Callable[[], float] = time.monotonic,
        free_share: Callable[[Path], float] | None = None,
    ) -> None:
        self._now_s = now_s
        self._held: dict[Path, int] = {}
        """Descriptor with the shared lock, by folder."""
        self._later: dict[Path, float] = {}
        """When a folder that others may still need is deleted."""
        found = sorted(path for path in root.glob("slot-*") if _SLOT.match(path.name))
        keep = keep and bool(found) and (free_share or _free_share)(root) >= FREE_SHARE_MIN
        for path in _largest_per_slot(path for path in found if keep and _owner(path) == job):
            if (lock := _shared_lock(path)) is not None:
                self._held[path] = lock
        for path in found:
            if path not in self._held:
                remove_if_dead(path)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The folders; nobody else deletes them or writes to them until `release`."""
        return tuple(self._held)

    def release(self, slot: int | None) -> None:
        """Let go of the folders. `delete_expired` deletes them later. A second call does nothing.

        Args:
            slot: Number of the slot that has restored its state; None if it has not, so that the next process of it finds all folders.
        """
        for path, lock in self._held.items():
            os.close(lock)
            if slot is not None:
                self._later[path] = self._now_s() + (OWN_KEPT_S if _slot_of(path) == slot else KEPT_S)
        self._held = {}

    def delete_all(self) -> None:
        """Delete what has been kept: the job has ended."""
        self._later = dict.fromkeys(self._later, self._now_s())
        self.delete_expired()

    def delete_expired(self) -> None:
        """Delete what has been kept for long enough, unless another process holds it."""
        for path in [path for path, due_s in self._later.items() if self._now_s() >= due_s]:
            del self._later[path]
            remove_if_dead(path)


def _shared_lock(path: Path) -> int | None:
    """Return a descriptor that holds the folder of a dead slot; None if the slot lives, or if the file system has no locks."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if path.lstat().st_ino == os.fstat(lock).st_ino:  # it was not deleted between the two calls
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _owner(path: Path) -> str | None:
    """Return the job that a folder belongs to; None if it is not to be trusted."""
    try:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return None
        file = os.open(path / _OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(file, _OWNER_BYTES_MAX).decode()
        finally:
            os.close(file)
    except (OSError, UnicodeDecodeError):
        return None


def _largest_per_slot(paths: Iterable[Path]) -> list[Path]:
    """A slot that dies again and again while it restores leaves folders with less and less."""
    chosen: dict[int, tuple[int, Path]] = {}
    for path in paths:
        found = (_bytes_in(path), path)
        chosen[_slot_of(path)] = max(found, chosen.get(_slot_of(path), found))
    return [path for _, path in chosen.values()]


def _bytes_in(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += (Path(folder) / name).lstat().st_size
    return total


def _slot_of(path: Path) -> int:
    match = _SLOT.match(path.name)
    return int(match[1]) if match is not None else -1


def _free_share(path: Path) -> float:
    usage = shutil.disk_usage(path)
    return usage.free / max(1, usage.total)
