"""The client of HdfsStore: calls of hdfs-native with a bound on the time that each may take, which the library does not have itself."""

from __future__ import annotations

import asyncio
import builtins
import threading
import weakref
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from hdfs_native import AsyncClient, AsyncFileReader, FileStatus, WriteOptions

from statefulspark.storage.limits import StoreLimits

T = TypeVar("T")

_QUICK_RETRIES = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "2000",
}
"""With Hadoop's defaults, a NameNode that refuses connections takes minutes to be reported; RetryingStore repeats the whole operation above that."""


class HdfsReader:
    """A file that is open for reading.

    Args:
        client: That opened it.
        reader: Of the library.
    """

    def __init__(self, client: HdfsClient, reader: AsyncFileReader) -> None:
        self._client = client
        self._reader = reader
        self.length = len(reader)

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly ``size`` bytes."""
        return self._client.call(self._reader.read_range(offset, size))


class HdfsClient:
    """A connection of one process. Thread-safe. Each call raises TimeoutError when it takes longer than ``limits.read_timeout_s``.

    User, Kerberos cache or keytab, tokens and the Hadoop configuration come from the environment: HADOOP_USER_NAME, KRB5CCNAME,
    HADOOP_TOKEN_FILE_LOCATION, HADOOP_CONF_DIR.

    Args:
        url: ``hdfs://authority``.
        limits: Time and size bounds.
    """

    def __init__(self, url: str, limits: StoreLimits) -> None:
        self._timeout_s = limits.read_timeout_s
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_serve, args=(self._loop,), name="hdfs", daemon=True).start()
        weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
        self._client = AsyncClient(url, _QUICK_RETRIES)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one call of the library to its end."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            future.cancel()
            raise TimeoutError(f"no response within {self._timeout_s:.0f} s") from None

    def status(self, path: str) -> FileStatus:
        """What ``path`` is; FileNotFoundError when it is absent."""
        return self.call(self._client.get_file_info(path))

    def entries(self, path: str) -> builtins.list[FileStatus]:
        """What is in a directory, or the file itself; FileNotFoundError when it is absent."""

        async def listed() -> builtins.list[FileStatus]:
            return [found async for found in self._client.list_status(path)]

        return self.call(listed())

    def open(self, path: str) -> HdfsReader:
        """Open a file for reading; FileNotFoundError when it is absent, or a directory."""
        return HdfsReader(self, self.call(self._client.read(path)))

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        """Make a file, and its directories; it is on the disks of the DataNodes when this returns. FileExistsError when it exists."""
        writer = self.call(self._client.create(path, WriteOptions(overwrite=False, create_parent=True)))
        for part in parts:
            self.call(writer.write(part))
        try:
            self.call(writer.hsync())
        except RuntimeError as error:
            if "UnsupportedFeature" not in str(error):  # of files with erasure coding
                raise
        self.call(writer.close())

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        """Rename in one step; FileExistsError when ``target`` exists and may not be replaced, FileNotFoundError when ``source`` is gone."""
        self.call(self._client.rename(source, target, overwrite))

    def delete(self, path: str) -> None:
        """Delete a file or an empty directory; an absent one is fine."""
        self.call(self._client.delete(path, recursive=False))


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
