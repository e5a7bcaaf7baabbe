"""Helpers shared by the remote object stores: file transfers and concurrent requests."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.keys import TEMPORARY_PREFIX
from statefulspark.storage.local.os_errors import WORKING_FIELD, translated

T = TypeVar("T")


class CancelableReader:
    """A file to upload, whose next read raises once the upload was canceled: the client then ends it, and no object appears.

    Args:
        stream: The open file.
        cancellation: Checked before each read.
    """

    def __init__(self, stream: BinaryIO, cancellation: Cancellation) -> None:
        self._stream = stream
        self._cancellation = cancellation

    def read(self, size: int = -1) -> bytes:
        """The next ``size`` bytes; ClosedError if the upload was canceled."""
        self._cancellation.check()
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, as files do."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._stream.tell()

    def seekable(self) -> bool:
        """Clients repeat a part by going back to its start."""
        return True


@contextmanager
def cancelable_file(path: Path, cancellation: Cancellation | None) -> Iterator[CancelableReader]:
    """Open ``path`` for an upload; FileNotFoundError when there is none, ClosedError if it was canceled before."""
    given = cancellation if cancellation is not None else Cancellation("the upload was canceled")
    given.check()
    with path.open("rb") as stream:
        yield CancelableReader(stream, given)


def download(path: Path, fetch: Callable[[BinaryIO], T]) -> T:
    """Make the file ``path`` from what ``fetch`` writes: to a temporary name beside it, then by a rename. Return what ``fetch`` returns."""
    temporary = path.parent / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
    with translated(path, WORKING_FIELD):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                fetched = fetch(stream)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return fetched


def each(action: Callable[[T], None], items: Iterable[T], at_once: int) -> None:
    """Do ``action`` with each of ``items``, ``at_once`` at a time; the first error is raised when those that run have ended."""
    every = list(items)
    if len(every) < 2:
        for item in every:
            action(item)
        return
    pool = ThreadPoolExecutor(min(at_once, len(every)), thread_name_prefix="storage")
    try:
        for done in [pool.submit(action, item) for item in every]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)
