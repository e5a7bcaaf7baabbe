"""Connection files: how the command line finds the API of a local job by the job's name.

``<home>/jobs/<name>.json`` contains URL and token and is readable by its owner only. ``<name>.lock`` is locked as
long as the job's process lives, so that a second start of the same job is rejected and the file of a killed process is detected.

Only a process that holds the lock deletes files, the lock file last. A process that locks a file which was deleted meanwhile has locked
nothing, so it checks that the path still leads to that file.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from statefulspark.errors import ConflictError, InvalidInputError

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""Names of jobs."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    url: Annotated[str, Field(pattern=r"^https?://")]
    token: Annotated[str, Field(min_length=1, repr=False)]
    pid: int


@dataclass(frozen=True, slots=True)
class Connection:
    """URL and token of a job's API."""

    url: str
    token: str

    def __repr__(self) -> str:
        """Without the token: reprs end up in logs."""
        return f"Connection(url={self.url!r}, token=...)"


def home_directory(environ: Mapping[str, str], user_home: Path) -> Path:
    """Return ``$STATEFULSPARK_HOME``, else ``$XDG_RUNTIME_DIR/statefulspark``, else ``~/.statefulspark``."""
    if home := environ.get("STATEFULSPARK_HOME"):
        return Path(home)
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "statefulspark"
    return user_home / ".statefulspark"


def running_jobs(home: Path) -> list[str]:
    """Names of the jobs that run on this machine now, sorted."""
    folder = home / "jobs"
    return sorted(path.stem for path in folder.glob("*.json") if _is_locked(path.with_suffix(".lock"))) if folder.is_dir() else []


def remove_dead_files(home: Path) -> None:
    """Delete the files of jobs whose process was killed; those of running and starting jobs stay."""
    folder = home / "jobs"
    files = list(folder.iterdir()) if folder.is_dir() else []
    for name in sorted({found for path in files if (found := _name_of(path)) is not None}):
        lock_file = folder / f"{name}.lock"
        lock = _claimed(lock_file, pauses_s=(0.0,))
        if lock is not None:
            for path in (*(path for path in files if _name_of(path) == name and path != lock_file), lock_file):
                path.unlink(missing_ok=True)
            os.close(lock)


def read_connection(home: Path, name: str) -> Connection:
    """Find a running job.

    Raises:
        InvalidInputError: No job of that name runs here, or others could have read or changed the file.
    """
    path = _path(home, name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as exc:
        raise _unknown(home, name) from exc
    with os.fdopen(descriptor, encoding="utf-8") as file:
        info = os.fstat(file.fileno())
        if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
            raise InvalidInputError(
                f"{path} belongs to another user or is open to others", field="--job", remedy="Give the job's URL and --token-file instead"
            )
        text = file.read()
    if not _is_locked(path.with_suffix(".lock")):
        raise _unknown(home, name)
    try:
        record = _Record.model_validate_json(text)
    except ValidationError as exc:
        # `from None`: pydantic's message would quote the file, token included.
        del exc
        raise InvalidInputError(f"{path} is damaged", field="--job", remedy="Give the job's URL and --token-file instead") from None
    return Connection(record.url, record.token)


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, in place of one that is there."""
    path.unlink(missing_ok=True)
    # Mode in open(): the bytes are never readable by others, whatever the umask.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def token_of(home: Path, url: str) -> str | None:
    """Return the token of the running job of this machine whose API has this URL; None if there is none, or its file cannot be trusted."""
    for name in running_jobs(home):
        with suppress(InvalidInputError):
            connection = read_connection(home, name)
            if connection.url.rstrip("/") == url.rstrip("/"):
                return connection.token
    return None


class ConnectionFile:
    """Holds a job's name on this machine; a context manager around the job's life.

    Raises:
        ConflictError: On entry, when a job of this name already runs here.
        InvalidInputError: The disk is full, or the folder cannot be written; the text names it.
    """

    def __init__(self, home: Path, name: str) -> None:
        self._path = _path(home, name)
        self._name = name
        self._lock: int | None = None

    @property
    def path(self) -> Path:
        """The file that ``write`` makes."""
        return self._path

    def __enter__(self) -> Self:
        """Claim the name."""
        with _writable(self._path.parent):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _claimed(self._path.with_suffix(".lock"))
        if lock is None:
            raise ConflictError(f"job {self._name!r} already runs on this machine. Stop it first: statefulspark stop --job {self._name}")
        self._lock = lock
        self._path.unlink(missing_ok=True)
        remove_dead_files(self._path.parent.parent)
        return self

    def write(self, connection: Connection) -> None:
        """Publish where the API listens; readers see the whole file or none."""
        record = _Record(url=connection.url, token=connection.token, pid=os.getpid())
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        with _writable(self._path.parent):
            write_private(temporary, record.model_dump_json(indent=2) + "\n")
            temporary.replace(self._path)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove the files and give the name back."""
        if self._lock is not None:
            self._path.unlink(missing_ok=True)
            self._path.with_suffix(".lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


def _path(home: Path, name: str) -> Path:
    if not NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} is neither a URL nor a job name", field="--job", remedy="Names have lower-case letters, digits, '-' and '.'"
        )
    return home / "jobs" / f"{name}.json"


def _unknown(home: Path, name: str) -> InvalidInputError:
    jobs = ", ".join(running_jobs(home)) or "none"
    return InvalidInputError(
        f"no job {name!r} runs on this machine (running: {jobs}, by {home / 'jobs'})",
        field="--job",
        remedy="Give the job's URL, or set STATEFULSPARK_HOME as it was for `statefulspark run`",
    )


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into one that says what to do."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"{folder} cannot be written ({error.strerror})",
            field="STATEFULSPARK_HOME",
            remedy="Free space there, or set it to a folder that this user can write",
        ) from error


_PAUSES_S = (0.05, 0.1, 0.2, 0.0)
"""Pauses between attempts to lock: `statefulspark status` holds the shared lock briefly while it checks."""


def _claimed(path: Path, *, pauses_s: tuple[float, ...] = _PAUSES_S) -> int | None:
    """Return the descriptor of the lock file, created if absent and locked; None if another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _lock(descriptor, pauses_s):
            os.close(descriptor)
            return None
        if _leads_to(path, descriptor):
            return descriptor
        os.close(descriptor)  # its owner deleted it before it gave the lock back


def _leads_to(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(descriptor: int, pauses_s: tuple[float, ...]) -> bool:
    for pause_s in pauses_s:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(pause_s)
        else:
            return True
    return False


def _name_of(path: Path) -> str | None:
    """Name of the job that a file in the folder belongs to; None if the file is not ours."""
    stem = path.stem if path.suffix in {".json", ".lock"} else path.stem.rpartition(".")[0] if path.suffix == ".tmp" else ""
    return stem if NAME.fullmatch(stem) else None


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
