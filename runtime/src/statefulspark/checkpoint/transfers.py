"""Moving files between the local disk and an object store, several at a time, never trusting what arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from statefulspark.checkpoint import paths
from statefulspark.checkpoint.digests import FileDigest, check_digest, digest_file
from statefulspark.errors import CorruptDataError
from statefulspark.storage.base import ObjectStore

T = TypeVar("T")
U = TypeVar("U")


def download_verified(store: ObjectStore, key: str, path: Path, expected: FileDigest) -> None:
    """Download an object and check it; a damaged one is not left on the local disk.

    Raises:
        CorruptDataError: The object is missing or damaged.
        UnavailableError: Storage did not answer.
    """
    name = paths.url_of(store.url, key)
    try:
        store.get_file(key, path)
    except KeyError:
        raise CorruptDataError("the file is missing", path=name) from None
    try:
        check_digest(digest_file(path), expected, path=name)
    except CorruptDataError:
        path.unlink()
        raise


def in_parallel(act: Callable[[T], U], items: Iterable[T], threads: int) -> list[U]:
    """Call ``act`` for every item in a few threads; results in order of the items, the first error after all have ended."""
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="checkpoint-files") as pool:
        return [future.result() for future in [pool.submit(act, item) for item in items]]
