"""The folder of a job on this machine belongs to its user: those who may write checkpoints there choose what the job unpickles."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from statefulspark.errors import InvalidInputError
from statefulspark.storage.local.folders import make_folder
from statefulspark.storage.local.os_errors import DIR_FIELD, translated

_REMEDY = "Name a directory that only you may write, for example in your home directory. If you trust all who may write this one, pass --shared-dir"


def check_private(folder: Path) -> None:
    """Check that nobody else owns or may write the folder of a job, or the one above it, as far as they exist. Root may.

    The one above may have the sticky bit, as ``/tmp`` has: there nobody else can replace the job's folder once it exists.

    Args:
        folder: The folder of one job.

    Raises:
        InvalidInputError: Another user owns or may write one of them.
    """
    for each in (folder.parent, folder):
        with translated(each):
            try:
                link, target = each.lstat(), each.stat()
            except (FileNotFoundError, NotADirectoryError):
                continue  # making it tells why it cannot be made
        if {link.st_uid, target.st_uid} - {os.geteuid(), 0}:
            raise InvalidInputError(f"{each} belongs to another user of this machine", field=DIR_FIELD, remedy=_REMEDY)
        is_sticky = each == folder.parent and target.st_mode & stat.S_ISVTX
        if not is_sticky and _others_write(target):
            raise InvalidInputError(
                f"other users of this machine may write {each}", field=DIR_FIELD, remedy=f"Run chmod go-w {each}, or pass --shared-dir"
            )


def make_private(folder: Path) -> None:
    """Make the folder of a job, and those above it that are missing, for their owner alone. One that exists stays as it is.

    Raises:
        InvalidInputError: Another user has made it meanwhile.
    """
    with translated(folder):
        make_folder(folder, 0o700)
    check_private(folder)


def _others_write(status: os.stat_result) -> bool:
    """A user's private group has the user's number, as Debian and Fedora make it."""
    return bool(status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid != status.st_uid))
