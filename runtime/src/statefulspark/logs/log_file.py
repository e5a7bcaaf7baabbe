"""The file that takes what Spark and its JVM write: log, stack traces, output of Python workers.

The JVM holds the file open as its standard output and standard error. A file that has grown is copied and then cut, as logrotate's
``copytruncate`` does, because the JVM cannot be told to open another one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from statefulspark.errors import InvalidInputError

BYTES_MAX: Final = 32 << 20
"""Size at which a log file is cut; the part before is kept in a second file."""
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def log_directory(environ: Mapping[str, str], user_home: Path) -> Path:
    """Return ``$STATEFULSPARK_HOME/logs``, else ``~/.statefulspark/logs``."""
    return Path(environ.get("STATEFULSPARK_HOME") or user_home / ".statefulspark") / "logs"


def records_path(name: str, environ: Mapping[str, str], user_home: Path) -> Path:
    """Return the path of the file with the log records of a job's driver and slots, one JSON object per line."""
    return log_directory(environ, user_home) / f"{name}.jsonl"


class LogFile:
    """A file to which Spark's log is appended.

    Args:
        path: The file. Folder and file are created for this user only.
        bytes_max: Size at which the file is cut; the part before is kept beside it, with the suffix ``.1``.

    Attributes:
        path: The file's absolute path.
        descriptor: The open file. Writing appends.

    Raises:
        InvalidInputError: The file cannot be written.
    """

    def __init__(self, path: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self.path = path.expanduser().absolute()
        self._bytes_max = bytes_max
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidInputError(
                f"{self.path} cannot be written ({error.strerror})",
                field="--log-file",
                remedy="Name a file that can be written, or - to leave Spark's log on stderr",
            ) from error

    def write(self, line: str) -> None:
        """Append a line."""
        with suppress(OSError):  # a full disk: what is logged is not worth the job
            os.write(self.descriptor, f"{line}\n".encode(errors="replace"))

    def cut(self) -> None:
        """Cut the file if it has grown too large. Lines that are written at the same moment may be lost; an error leaves the file as it is."""
        try:
            if os.fstat(self.descriptor).st_size > self._bytes_max:
                earlier = self.path.with_name(f"{self.path.name}.1")
                with self.path.open("rb") as source, os.fdopen(os.open(earlier, _CREATE, 0o600), "wb") as target:
                    shutil.copyfileobj(source, target)
                os.ftruncate(self.descriptor, 0)
        except OSError:
            return

    def close(self) -> None:
        """Close the file here; a JVM that writes to it keeps it open."""
        os.close(self.descriptor)
