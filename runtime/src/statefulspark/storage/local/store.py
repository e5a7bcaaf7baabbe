"""LocalStore: objects as files below a folder (``file://``), on a local disk or a shared file system with POSIX renames.

An object appears under its name in one step: it is written to a temporary file in the same folder, synced, then renamed
(``put``) or hard-linked (``put_if_absent``: a link, unlike a rename, fails when the name exists). The folder is synced
afterwards, so that what was reported as written survives a power loss.
"""

from __future__ import annotations

import builtins
import errno
import os
import stat
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from statefulspark.errors import ConflictError, CorruptDataError, InvalidInputError, UnavailableError
from statefulspark.storage.base import ObjectInfo
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.hashes import HashAlgorithm, write_hashed
from statefulspark.storage.keys import KEY_BYTES_MAX, TEMPORARY_PREFIX, check_folder, check_key, check_prefix
from statefulspark.storage.local.folders import prune, sync_folder, temporary_file, unlink_below
from statefulspark.storage.local.os_errors import DIR_FIELD, WORKING_FIELD, translated
from statefulspark.storage.pieces import pieces

_RACES_MAX = 100
"""Number of times an object may be created and deleted during one conditional write."""

_READ_BYTES_MAX: Final = 512 << 20
"""Largest object that is read whole, several times as large as any that is written. A sparse file of a terabyte costs who makes it nothing."""

_NO_LINKS = {errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


@dataclass(frozen=True, slots=True)
class LocalStore:
    """An ObjectStore in the folder ``root`` (absolute; made by the first write).

    Symbolic links below the root are never listed, and never followed to delete: anyone who may write there could point them anywhere. The root
    itself may be a link.

    Every node of the job must see the same folder. Needs hard links, as all usual local file systems, NFS and CephFS have.

    Raises:
        InvalidInputError: ``root`` is relative.
    """

    root: Path

    def __post_init__(self) -> None:
        """Refuse a root whose meaning would depend on the working directory of each process."""
        if not self.root.is_absolute():
            raise InvalidInputError(f"{str(self.root)!r} is not absolute", field=DIR_FIELD, remedy="Give an absolute path")

    @property
    def url(self) -> str:
        """``file:///...``, percent-encoded."""
        return self.root.as_uri()

    def put(self, key: str, data: bytes) -> None:
        """Write or replace."""
        self._replace(key, lambda stream: stream.write(data))

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Create; ConflictError when the key exists with other bytes."""
        path = self._path(key)
        with translated(path), temporary_file(path.parent) as (temporary, stream):
            stream.write(data)
            _sync(stream)
            for _ in range(_RACES_MAX):
                try:
                    _link(temporary, path)
                except FileExistsError:
                    existing = self._read(key)
                    if existing is None:
                        continue
                    if existing != data:
                        raise ConflictError(f"{key} exists in {self.url} with other content") from None
                # Also when it existed: its writer may have died before this step.
                sync_folder(path.parent)
                return
        raise UnavailableError(f"{key} in {self.url} was repeatedly created and deleted")

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        """Copy a local file in; FileNotFoundError when there is none, ClosedError if it is canceled before all bytes are copied."""
        with path.open("rb") as source:
            self._replace(key, lambda stream: _copy(source, stream, cancellation))

    def get(self, key: str) -> bytes:
        """Read whole; KeyError when absent, CorruptDataError when larger than anything that is read in this way."""
        path = self._path(key)
        with translated(path):
            data = self._read(key)
        if data is None:
            raise KeyError(key)
        return data

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> str:
        """Copy to ``path`` (folders are made); return its hash. KeyError when absent."""
        source_path = self._path(key)
        with translated(source_path):
            source = _open(source_path)
        if source is None:
            raise KeyError(key)
        with source, translated(path, WORKING_FIELD), temporary_file(path.absolute().parent) as (temporary, stream):
            digits = write_hashed(pieces(source), stream, algorithm)
            stream.flush()
            temporary.replace(path)
        return digits

    def head(self, key: str) -> ObjectInfo | None:
        """Info or None."""
        path = self._path(key)
        with translated(path):
            try:
                status = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return ObjectInfo(key=key, size_bytes=status.st_size, modified_s=status.st_mtime)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """All objects whose key starts with ``prefix``, sorted by key."""
        folder, _, start = check_prefix(prefix).rpartition("/")
        with translated(self.root):
            return sorted(self._walk(folder, start), key=lambda info: info.key)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Names directly below ``prefix`` that have objects under them, sorted."""
        folder = check_folder(prefix).rstrip("/")
        with translated(self.root):
            names = [e.name for e in self._entries(folder) if e.is_dir(follow_symlinks=False)]
            return sorted(name for name in names if any(True for _ in self._walk(f"{folder}/{name}" if folder else name, "")))

    def copy(self, source: str, target: str) -> None:
        """Copy within the store; KeyError when ``source`` is absent."""
        source_path = self._path(source)
        with translated(source_path):
            stream = _open(source_path)
        if stream is None:
            raise KeyError(source)
        with stream:
            self._replace(target, lambda written: _copy(stream, written, None))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; absent keys are fine. Folders left empty go too."""
        folders: dict[tuple[str, ...], builtins.list[str]] = {}
        for *parts, name in [check_key(key).split("/") for key in keys]:
            folders.setdefault(tuple(parts), []).append(name)
        for folder, names in folders.items():
            with translated(self.root.joinpath(*folder)):
                unlink_below(self.root, folder, names)
        prune(folders, self.root)

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _replace(self, key: str, fill: Callable[[BinaryIO], object]) -> None:
        path = self._path(key)
        with translated(path), temporary_file(path.parent) as (temporary, stream):
            fill(stream)
            _sync(stream)
            temporary.replace(path)
            sync_folder(path.parent)

    def _read(self, key: str) -> bytes | None:
        stream = _open(self._path(key))
        if stream is None:
            return None
        with stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            if size_bytes > _READ_BYTES_MAX:
                raise CorruptDataError("the object is too large to be read", path=f"{self.url}/{key}", found=f"{size_bytes} bytes")
            return stream.read()

    def _walk(self, folder: str, start: str) -> Iterator[ObjectInfo]:
        """Objects in ``folder`` (relative, no slash at the end) whose path below it begins with ``start``."""
        pending = [(folder, start)]
        while pending:
            folder, start = pending.pop()
            for entry in self._entries(folder):
                key = f"{folder}/{entry.name}" if folder else entry.name
                if not entry.name.startswith(start) or entry.name.startswith(TEMPORARY_PREFIX) or len(key) > KEY_BYTES_MAX:
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((key, ""))
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield ObjectInfo(key=key, size_bytes=status.st_size, modified_s=status.st_mtime)
                except FileNotFoundError:
                    continue  # deleted concurrently

    def _entries(self, folder: str) -> builtins.list[os.DirEntry[str]]:
        """Entries of a folder below the root; none if a link leads there."""
        path = self.root
        for part in folder.split("/") if folder else ():
            path /= part
            if path.is_symlink():
                return []
        try:
            with os.scandir(path) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []


def file_of(url: str, key: str) -> Path | None:
    """Return the file that has an object of the store at ``url``; None if that store is no folder. It must not be changed."""
    folder = url.removeprefix("file://")
    return None if folder == url else Path(urllib.parse.unquote(folder)) / check_key(key)


def _open(path: Path) -> BufferedReader | None:
    """Open an object; None if there is none. Pipes and devices, which could be read without an end, are none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def _copy(source: BufferedReader, target: BinaryIO, cancellation: Cancellation | None) -> None:
    if cancellation is not None:
        cancellation.check()
    for piece in pieces(source):
        target.write(piece)
        if cancellation is not None:
            cancellation.check()


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _link(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as exc:
        # EPERM is what file systems without links answer; the temporary file next to it could just be written, so it is not access.
        if exc.errno in _NO_LINKS or exc.errno == errno.EPERM:
            message = f"the file system of {path.parent} has no hard links, which creating an object exactly once needs"
            raise InvalidInputError(message, field=DIR_FIELD, remedy="Use a POSIX file system, NFS or s3://") from exc
        raise
