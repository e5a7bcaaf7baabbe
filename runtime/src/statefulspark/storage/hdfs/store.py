"""HdfsStore: objects as files in HDFS (``hdfs://``).

hdfs-native, because it speaks HDFS's own protocol without a JVM, a libhdfs or a Hadoop installation in every slot, and knows high availability, Kerberos,
delegation tokens and wire encryption. An object is written to a temporary file in the same directory and renamed: the NameNode does that in one step, and
refuses it where the name exists.
"""

from __future__ import annotations

import builtins
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.base import ObjectInfo
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.conditional import create_once
from statefulspark.storage.hashes import HashAlgorithm, write_hashed
from statefulspark.storage.hdfs.client import HdfsClient
from statefulspark.storage.hdfs.errors import is_below_a_file, is_not_empty, translate
from statefulspark.storage.keys import TEMPORARY_PREFIX, check_folder, check_key, check_prefix
from statefulspark.storage.limits import StoreLimits
from statefulspark.storage.local.folders import STALE_S
from statefulspark.storage.per_process import PerProcess
from statefulspark.storage.transfers import cancelable_file, download, each

if TYPE_CHECKING:
    from hdfs_native import FileStatus

_FIELD = "checkpointing.dir"


class HdfsStore:
    """An ObjectStore in a directory, which the first write makes. Thread-safe; picklable (connects again where it is unpickled).

    Args:
        authority: ``host:port`` of the NameNode, or the name of a name service of the Hadoop configuration.
        folder: Relative path without a slash at its ends; empty for the root.
        limits: Time and size bounds.
    """

    def __init__(self, authority: str, folder: str = "", *, limits: StoreLimits | None = None) -> None:
        self._authority = authority
        self._root = f"/{_checked(folder, field=_FIELD)}" if folder else ""
        self._limits = limits or StoreLimits()
        self._connected = PerProcess(partial(HdfsClient, f"hdfs://{authority}", self._limits))

    @property
    def url(self) -> str:
        """``hdfs://authority/folder``."""
        return f"hdfs://{self._authority}{self._root}"

    def __repr__(self) -> str:
        """Name the place."""
        return f"HdfsStore({self.url!r})"

    def put(self, key: str, data: bytes) -> None:
        """Write or replace."""
        self._write(key, [data], "write", overwrite=True)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Create; ConflictError when the key exists with other bytes."""
        create_once(key, data, url=self.url, create=partial(self._write, key, [data], "create", overwrite=False), read=self.get)

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        """Upload a local file; FileNotFoundError when there is none."""
        with cancelable_file(path, cancellation) as stream:
            self._write(key, iter(lambda: stream.read(self._limits.part_bytes), b""), "upload", overwrite=True)

    def get(self, key: str) -> bytes:
        """Read whole; KeyError when absent."""
        return b"".join(self._parts(key, "read"))

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> str:
        """Download to ``path`` (directories are made); return its hash. KeyError when absent."""
        parts = self._parts(key, "download")
        return download(path, lambda stream: write_hashed(parts, stream, algorithm))

    def head(self, key: str) -> ObjectInfo | None:
        """Info or None."""
        path = self._path(key)
        with suppress(KeyError), self._translated("look up", key):
            found = self._client.status(path)
            return None if found.isdir else _info(key, found)
        return None

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """All objects whose key starts with ``prefix``, sorted by key."""
        folder, _, start = check_prefix(prefix).rpartition("/")
        with self._translated("list", prefix):
            return sorted(self._walk(folder, start), key=lambda info: info.key)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Names directly below ``prefix`` that have objects under them, sorted."""
        folder = check_folder(prefix).rstrip("/")
        with self._translated("list", prefix):
            names = [_name(found) for found in self._entries(folder) if found.isdir]
            return sorted(name for name in names if any(True for _ in self._walk(_join(folder, name), "")))

    def copy(self, source: str, target: str) -> None:
        """Copy through this process, because HDFS cannot; KeyError when ``source`` is absent."""
        self._path(target)
        if source == target:
            if self.head(source) is None:
                raise KeyError(source)
            return
        self._write(target, self._parts(source, "copy"), "copy", overwrite=True)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; absent keys are fine. Directories left empty go too."""
        every = [(key, self._path(key)) for key in keys]
        each(self._delete, every, self._limits.at_once)
        for folder in sorted({path.rpartition("/")[0] for _, path in every}, key=len, reverse=True):
            self._prune(folder)

    def _delete(self, named: tuple[str, str]) -> None:
        key, path = named
        with suppress(KeyError), self._translated("delete", key):
            if not self._client.status(path).isdir:
                self._client.delete(path)

    @property
    def _client(self) -> HdfsClient:
        return self._connected.get()

    def _path(self, key: str) -> str:
        return f"{self._root}/{_checked(key, field='key')}"

    def _write(self, key: str, parts: Iterable[bytes], operation: str, *, overwrite: bool) -> None:
        """Make an object of ``parts`` in one step; ConflictError when it exists and may not be replaced."""
        path = self._path(key)
        temporary = f"{path.rpartition('/')[0]}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        with self._translated(operation, key, absent=False):
            try:
                self._client.write(temporary, parts)
                self._client.rename(temporary, path, overwrite=overwrite)
            except TimeoutError:
                raise
            except BaseException:
                # Without a NameNode this fails too; `_prune` removes what stays.
                with suppress(Exception):
                    self._client.delete(temporary)
                raise

    def _parts(self, key: str, operation: str) -> Iterator[bytes]:
        """The bytes of an object, a part at a time; KeyError before the first one when it is absent."""
        path = self._path(key)
        with self._translated(operation, key):
            reader = self._client.open(path)
        for offset in range(0, reader.length, self._limits.part_bytes):
            with self._translated(operation, key):
                part = reader.read(offset, min(self._limits.part_bytes, reader.length - offset))
            yield part

    def _entries(self, folder: str) -> builtins.list[FileStatus]:
        """Entries of ``folder`` (relative); none if it is absent, or a file."""
        path = f"{self._root}/{folder}".rstrip("/") or "/"
        try:
            found = self._client.entries(path)
        except (FileNotFoundError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_below_a_file(error):
                raise
            return []
        # The listing of a file is the file itself.
        return [file for file in found if file.path.rstrip("/") != path]

    def _walk(self, folder: str, start: str) -> Iterator[ObjectInfo]:
        """Objects in ``folder`` (relative) whose path below it begins with ``start``."""
        for found in self._entries(folder):
            name = _name(found)
            if not name.startswith(start) or name.startswith(TEMPORARY_PREFIX):
                continue
            key = _join(folder, name)
            if found.isdir:
                yield from self._walk(key, "")
            else:
                yield _info(key, found)

    def _prune(self, folder: str) -> None:
        """Remove ``folder`` (absolute) and its parents below the root as far as they are empty; what fails is left to a later deletion."""
        with suppress(Exception):
            while len(folder) > len(self._root):
                # HDFS deletes a file by the same call, and a key below an object leads here too.
                if not self._client.status(folder).isdir or not self._remove_if_empty(folder):
                    return
                folder = folder.rpartition("/")[0]

    def _remove_if_empty(self, folder: str) -> bool:
        for _ in range(2):
            try:
                self._client.delete(folder)
            except RuntimeError as error:
                if not is_not_empty(error) or not self._sweep(folder):
                    return False
            else:
                return True
        return False

    def _sweep(self, folder: str) -> bool:
        """Remove files of writers that have died when nothing else is in ``folder``; True when something was removed."""
        found = self._client.entries(folder)
        stale_ms = (time.time() - STALE_S) * 1000
        if any(not _name(file).startswith(TEMPORARY_PREFIX) or file.modification_time > stale_ms for file in found):
            return False
        for file in found:
            self._client.delete(file.path)
        return bool(found)

    @contextmanager
    def _translated(self, operation: str, key: str, *, absent: bool = True) -> Iterator[None]:
        """Turn the client's errors into ours; ``absent``: whether "not found" is said of the object."""
        url = f"{self.url}/{key}"
        try:
            yield
        except FileNotFoundError as exc:
            if absent:
                raise KeyError(key) from exc
            # The temporary file is gone: renamed by an attempt whose reply was lost, or deleted by another program.
            raise UnavailableError(f"{url}: it is not known whether {operation} was completed") from exc
        except FileExistsError as exc:
            raise ConflictError(f"{key} exists in {self.url}") from exc
        except (StatefulSparkError, KeyError):
            raise
        except Exception as exc:
            if absent and is_below_a_file(exc):
                raise KeyError(key) from exc
            raise translate(exc, url=url, operation=operation) from exc


def _checked(key: str, *, field: str) -> str:
    """Return ``key`` when HDFS can hold it."""
    if ":" in check_key(key, field=field):
        raise InvalidInputError(f"{key!r} contains a colon, which HDFS does not allow in names", field=field, remedy="Choose another name")
    return key


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _name(found: FileStatus) -> str:
    return found.path.rstrip("/").rpartition("/")[2]


def _info(key: str, found: FileStatus) -> ObjectInfo:
    return ObjectInfo(key=key, size_bytes=found.length, modified_s=found.modification_time / 1000)
