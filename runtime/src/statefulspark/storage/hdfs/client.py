"""The client of HdfsStore: calls of hdfs-native with a bound on the time that each may take, which the library does not have itself."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from hdfs_native import Client, FileReader, FileStatus, WriteOptions

from statefulspark.storage.limits import StoreLimits

T = TypeVar("T")

_QUICK_RETRIES = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "2000",
}
"""With Hadoop's defaults, a NameNode that refuses connections takes minutes to be reported; RetryingStore repeats the whole operation above that."""

_ABANDONED_MAX = 200
"""Calls without an answer whose threads a process keeps until the operating system ends their connections; beyond, calls fail at once."""


class HdfsReader:
    """A file that is open for reading.

    Args:
        client: That opened it.
        reader: Of the library.
    """

    def __init__(self, client: HdfsClient, reader: FileReader) -> None:
        self._client = client
        self._reader = reader
        self.length = len(reader)

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly ``size`` bytes."""
        return self._client.call(partial(self._reader.read_range, offset, size))


class HdfsClient:
    """Connections of one process. Thread-safe. Each call raises TimeoutError when it takes longer than ``limits.read_timeout_s``.

    User, Kerberos cache or keytab, tokens and the Hadoop configuration come from the environment: HADOOP_USER_NAME, KRB5CCNAME,
    HADOOP_TOKEN_FILE_LOCATION, HADOOP_CONF_DIR.

    Args:
        url: ``hdfs://authority``.
        limits: Time and size bounds.
    """

    def __init__(self, url: str, limits: StoreLimits) -> None:
        self._url = url
        self._timeout_s = limits.read_timeout_s
        self._client = Client(url, _QUICK_RETRIES)
        self._abandoned: set[Future[Any]] = set()

    def call(self, work: Callable[[], T]) -> T:
        """Run one call of the library to its end. It cannot be interrupted, so it has a thread of its own, which an end of the process does not wait for."""
        if len(self._abandoned) >= _ABANDONED_MAX:
            raise TimeoutError(f"{_ABANDONED_MAX} earlier calls have not been answered")
        future: Future[T] = Future()
        threading.Thread(target=_run, args=(work, future), name="hdfs", daemon=True).start()
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            if future.done():
                raise
            self._abandoned.add(future)
            future.add_done_callback(self._abandoned.discard)
            # The connection may be what is silent, not the NameNode.
            self._client = Client(self._url, _QUICK_RETRIES)
            raise TimeoutError(f"no response within {self._timeout_s:.0f} s") from None

    def status(self, path: str) -> FileStatus:
        """Status of ``path``; raises FileNotFoundError if it is absent."""
        return self.call(partial(self._client.get_file_info, path))

    def entries(self, path: str) -> builtins.list[FileStatus]:
        """Entries of a directory, or the file itself; raises FileNotFoundError if it is absent."""
        client = self._client
        return self.call(lambda: list(client.list_status(path)))

    def open(self, path: str) -> HdfsReader:
        """Open a file for reading; FileNotFoundError when it is absent, or a directory."""
        return HdfsReader(self, self.call(partial(self._client.read, path)))

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        """Make a file, and its directories; it is on the disks of the DataNodes when this returns. FileExistsError when it exists."""
        writer = self.call(partial(self._client.create, path, WriteOptions(overwrite=False, create_parent=True)))
        for part in parts:
            self.call(partial(writer.write, part))
        try:
            self.call(writer.hsync)
        except RuntimeError as error:
            if "UnsupportedFeature" not in str(error):  # of files with erasure coding
                raise
        self.call(writer.close)

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        """Rename in one step; FileExistsError when ``target`` exists and may not be replaced, FileNotFoundError when ``source`` is gone."""
        self.call(partial(self._client.rename, source, target, overwrite))

    def delete(self, path: str) -> None:
        """Delete a file or an empty directory; an absent one is fine."""
        self.call(partial(self._client.delete, path, recursive=False))


def _run(work: Callable[[], T], future: Future[T]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  the caller raises it
        future.set_exception(error)
    else:
        future.set_result(result)
