"""What the operating system says about files, in the words of our error tree."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError

DIR_FIELD = "checkpointing.dir"
"""Where the user chose the store's folder."""

WORKING_FIELD = "local working directory"
"""Where downloads go: scratch space of a slot or the driver."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_MISPLACED = {errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}


@contextmanager
def translated(path: Path, field: str = DIR_FIELD) -> Iterator[None]:
    """Turn what the operating system says about ``path`` into our errors; ``field`` is where the user chose the folder."""
    try:
        yield
    except OSError as exc:
        raise _translate(exc, path, field) from exc


def _translate(exc: OSError, path: Path, field: str) -> StatefulSparkError:
    where = exc.filename or path
    reason = os.strerror(exc.errno) if exc.errno else type(exc).__name__
    if exc.errno in _FULL:
        return UnavailableError(f"{field}: {where}: {reason}. Free space there or raise its quota", retry_after_s=10.0)
    if exc.errno in _REFUSED:
        remedy = "Give this user write access to the folder, or choose another one"
        return InvalidInputError(f"{where}: {reason}", field=field, remedy=remedy)
    if exc.errno in _MISPLACED:
        remedy = "A file and a folder collide or the path is too long; choose another folder"
        return InvalidInputError(f"{where}: {reason}", field=field, remedy=remedy)
    return UnavailableError(f"{field}: {where}: {reason}")
