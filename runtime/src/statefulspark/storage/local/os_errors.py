"""Translates operating system errors about files into our error hierarchy."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError

DIR_FIELD = "checkpointing.dir"
"""Manifest field of the store's folder."""

WORKING_FIELD = "local working directory"
"""Manifest field of the folder for downloads: temporary space of a slot or the driver."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM}
_DISK = {*_FULL, errno.EROFS, errno.EIO}
_DISK_REASONS = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS))
_DISK_REMEDY = (
    "Free space there, or choose another disk: spec.stateBackend.rocksdb.localDir for slots, spark.local.dir in spec.sparkConf for Spark, the "
    "environment variable TMPDIR for other temporary files"
)
_DELETED_REMEDY = "Keep it from this folder, or choose another one: spec.stateBackend.rocksdb.localDir for slots, the environment variable TMPDIR for others"
_PATH = re.compile(r"/[^\s'\"():]+")
_MISPLACED = {errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}


@contextmanager
def translated(path: Path, field: str = DIR_FIELD) -> Iterator[None]:
    """Turn what the operating system says about ``path`` into our errors; ``field`` is where the user chose the folder."""
    try:
        yield
    except OSError as exc:
        raise _translate(exc, path, field) from exc


@contextmanager
def local_disk(path: Path | None = None) -> Iterator[None]:
    """Turn a full, write-protected or failing local disk into `UnavailableError`; all else passes.

    Args:
        path: The process's working folder, for errors that do not name a file; None for the folder of temporary files.
    """
    try:
        yield
    except OSError as exc:
        found = disk_error(exc, path)
        if found is None:
            raise
        raise found from exc


def disk_error(error: BaseException, path: Path | None = None) -> UnavailableError | None:
    """Return the error for a full, write-protected or failing local disk, or None if ``error`` is another one.

    Args:
        error: The exception.
        path: The process's working folder, for errors that do not name a file.
    """
    if not isinstance(error, OSError) or error.errno not in _DISK:
        return None
    return disk_failure(error.filename or path or tempfile.gettempdir(), os.strerror(error.errno))


def disk_failure(where: object, reason: str) -> UnavailableError:
    """Return the one sentence about a local disk; ``reason`` is the operating system's."""
    return UnavailableError(f"the local disk cannot be written: {where}: {reason}. {_DISK_REMEDY}", retry_after_s=10.0)


def deleted_file(where: object) -> UnavailableError:
    """Return the one sentence about a file in temporary space that another program deleted while it was in use."""
    return UnavailableError(f"another program deleted a temporary file that was in use: {where}. {_DELETED_REMEDY}")


def disk_trouble_in(text: str) -> UnavailableError | None:
    """Return the error for a failing local disk that another program's text, such as Spark's stack trace, reports."""
    for line in text.splitlines():
        reason = next((reason for reason in _DISK_REASONS if reason in line), None)
        if reason is not None:
            path = _PATH.search(line)
            return disk_failure(path[0] if path else "a folder of Spark's", reason)
    return None


def _translate(exc: OSError, path: Path, field: str) -> StatefulSparkError:
    where = exc.filename or path
    reason = os.strerror(exc.errno) if exc.errno else type(exc).__name__
    if exc.errno in _FULL:
        return UnavailableError(f"{field}: {where}: {reason}. Free space there or raise its quota", retry_after_s=10.0)
    if exc.errno == errno.EROFS:  # the kernel makes a file system read-only after an error, and a server that moves does so for a while
        return UnavailableError(f"{field}: {where}: {reason}. Mount it writable, or choose another folder", retry_after_s=10.0)
    if exc.errno in _REFUSED:
        remedy = "Give this user write access to the folder, or choose another one"
        return InvalidInputError(f"{where}: {reason}", field=field, remedy=remedy)
    if exc.errno in _MISPLACED:
        remedy = "A file and a folder collide or the path is too long; choose another folder"
        return InvalidInputError(f"{where}: {reason}", field=field, remedy=remedy)
    return UnavailableError(f"{field}: {where}: {reason}")
