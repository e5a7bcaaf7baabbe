"""Transfers files between the local disk and an object store, in parallel, and verifies every download."""

from __future__ import annotations

import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import FileDigest, check_digest, digest_file
from statefulspark.errors import CorruptDataError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.hashes import HashAlgorithm
from statefulspark.storage.local.os_errors import local_disk, translated
from statefulspark.storage.local.store import file_of

T = TypeVar("T")
U = TypeVar("U")


def read_again(read: Callable[[], T]) -> T:
    """Read, and once more if what arrived is damaged: one bad read, by the network or a disk, is no damage in storage.

    Raises:
        CorruptDataError: It is damaged both times.
    """
    try:
        return read()
    except CorruptDataError:
        return read()


def download_verified(store: ObjectStore, key: str, path: Path, expected: FileDigest) -> None:
    """Download an object and check it; a damaged one is not left on the local disk.

    Raises:
        CorruptDataError: The object is missing or damaged.
        UnavailableError: Storage did not answer.
    """
    name = paths.url_of(store.url, key)

    def attempt() -> None:
        if (stored := file_of(store.url, key)) is not None:
            _check_size(stored, expected, name)
        try:
            found = download(store, key, path, expected.algorithm)
        except KeyError:
            raise CorruptDataError("the file is missing", path=name) from None
        try:
            check_digest(found, expected, path=name)
        except CorruptDataError:
            path.unlink()
            raise

    read_again(attempt)


def download(store: ObjectStore, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> FileDigest:
    """Download an object; return its digest. KeyError when absent."""
    digits = store.get_file(key, path, algorithm)
    return digest_file(path, algorithm) if digits is None else FileDigest.of(path.stat().st_size, algorithm, digits)


@contextmanager
def verified_file(store: ObjectStore, key: str, expected: FileDigest) -> Iterator[Path]:
    """Give a file with the bytes of an object, to read within the block: the object itself where storage is a folder, elsewhere a download.

    Raises:
        CorruptDataError: The object is missing or damaged.
        UnavailableError: Storage did not answer, or the local disk is full.
    """
    stored = file_of(store.url, key)
    if stored is not None:
        read_again(lambda: _check_in_place(stored, expected, paths.url_of(store.url, key)))
        yield stored
        return
    with local_disk(), tempfile.TemporaryDirectory(prefix="statefulspark-file-") as scratch:
        downloaded = Path(scratch) / "object"
        download_verified(store, key, downloaded, expected)
        yield downloaded


def _check_size(path: Path, expected: FileDigest, name: str) -> None:
    """Compare sizes before a byte is read: a sparse file has any size at no cost, and a pipe or a device has no end."""
    with translated(path):
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise CorruptDataError("the file is missing", path=name) from None
    if not stat.S_ISREG(status.st_mode):
        raise CorruptDataError("the file is missing", path=name)
    check_digest(FileDigest(status.st_size, expected.checksum), expected, path=name)


def _check_in_place(path: Path, expected: FileDigest, name: str) -> None:
    _check_size(path, expected, name)
    with translated(path):
        try:
            found = digest_file(path, expected.algorithm)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise CorruptDataError("the file is missing", path=name) from None
    check_digest(found, expected, path=name)


class Copier:
    """Copies objects between two folders; inside one storage no bytes move through this machine.

    Args:
        source: Opened where the objects are.
        target: Opened where the copies go.
        open_store: Opens what both have in common.
    """

    def __init__(self, source: ObjectStore, target: ObjectStore, open_store: Callable[[str], ObjectStore]) -> None:
        root = paths.common_root(source.url, target.url)
        self._source = source
        self._target = target
        self._common = open_store(root) if root is not None else None

    def copy(self, key: str, target_key: str, expected: FileDigest) -> None:
        """Copy the object ``key`` to ``target_key``.

        Raises:
            CorruptDataError: It is missing; or damaged, if its bytes pass through this machine.
            UnavailableError: Storage did not answer.
        """
        if self._common is None:
            with local_disk(), tempfile.TemporaryDirectory(prefix="statefulspark-copy-") as scratch:
                local = Path(scratch) / "object"
                download_verified(self._source, key, local, expected)
                self._target.put_file(target_key, local)
            return
        root = self._common.url
        try:
            self._common.copy(paths.key_below(root, self._source.url, key), paths.key_below(root, self._target.url, target_key))
        except KeyError:
            raise CorruptDataError("the file is missing", path=paths.url_of(self._source.url, key)) from None


class _Skipped(Exception):  # noqa: N818  no error: an earlier item has one
    """An item was not begun."""


def in_parallel(act: Callable[[T], U], items: Iterable[T], threads: int) -> list[U]:
    """Call ``act`` for every item in a few threads; results in order of the items.

    After an error no further item is begun: nobody needs the rest of the files of a restore or a checkpoint that has failed. The error of the first item
    that has one is raised when those that had begun have ended.
    """
    failed = threading.Event()

    def run(item: T) -> U:
        if failed.is_set():
            raise _Skipped
        try:
            return act(item)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="checkpoint-files") as pool:
        # Items begin in order, so one that was skipped comes after the one with the error.
        return [future.result() for future in [pool.submit(run, item) for item in items]]
