"""Several files at once: results in order, at most so many at a time, and no further file after an error. Verified files: in place, or downloaded."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from runtime.tests.checkpoint.bucket import Bucket, BucketStore

from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.transfers import in_parallel, verified_file
from statefulspark.errors import CorruptDataError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.hashes import HashAlgorithm
from statefulspark.storage.open import open_store


def test_results_are_in_order_and_calls_are_bounded() -> None:
    """As many at once as there are threads, never more."""
    together = threading.Barrier(4)
    running, most, lock = 0, 0, threading.Lock()

    def act(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(60)  # broken if four do not run at once
        with lock:
            running -= 1
        return item * item

    assert in_parallel(act, range(12), 4) == [item * item for item in range(12)]
    assert most == 4


def test_after_an_error_no_further_item_is_begun() -> None:
    begun: list[int] = []

    def act(item: int) -> None:
        begun.append(item)
        if item == 2:
            raise CorruptDataError("damaged", path=f"file-{item}")

    with pytest.raises(CorruptDataError, match="file-2"):
        in_parallel(act, range(9), 1)
    assert begun == [0, 1, 2]


def test_what_has_begun_ends_before_the_error_is_raised() -> None:
    """A download that goes on would write into a folder that the caller deletes. Of two errors the first item's is raised."""
    both = threading.Barrier(2)
    ended: list[int] = []

    def act(item: int) -> None:
        both.wait(60)
        if item == 0:
            assert second_ended.wait(60)
        ended.append(item)
        second_ended.set()
        raise CorruptDataError("damaged", path=f"file-{item}")

    second_ended = threading.Event()
    with pytest.raises(CorruptDataError, match="file-0"):
        in_parallel(act, range(6), 2)
    assert ended == [1, 0]


KEY = "savepoint-1/tables/uid=a%2Fb/part.parquet"
DATA = bytes(range(256)) * 300


@pytest.fixture(params=["folder with spaces and %", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A store of either kind."""
    return open_store((tmp_path / request.param).as_uri()) if " " in request.param else BucketStore(Bucket(), "jobs/")


@pytest.mark.parametrize("algorithm", HashAlgorithm)
def test_a_verified_file_is_the_object(store: ObjectStore, tmp_path: Path, algorithm: HashAlgorithm) -> None:
    """In a folder it is the object itself; a download is gone after the block."""
    store.put(KEY, DATA)
    with verified_file(store, KEY, digest_bytes(DATA, algorithm)) as path:
        assert path.read_bytes() == DATA
        assert path.is_relative_to(tmp_path) is store.url.startswith("file:")
    assert path.exists() is store.url.startswith("file:")


@pytest.mark.parametrize("stored", [None, b"", DATA[:-1], DATA + b"x", DATA[:7] + b"!" + DATA[8:]])
def test_a_file_that_cannot_be_verified_is_never_given(store: ObjectStore, stored: bytes | None) -> None:
    """Missing, empty, cut short, longer, or with one other byte; the error names the object."""
    if stored is not None:
        store.put(KEY, stored)
    with pytest.raises(CorruptDataError, match=r"part\.parquet"), verified_file(store, KEY, digest_bytes(DATA)):
        pytest.fail("a file was given")


def test_a_folder_is_no_object(tmp_path: Path) -> None:
    """As for every other read of a store."""
    (tmp_path / "x").mkdir()
    with pytest.raises(CorruptDataError, match="missing"), verified_file(open_store(tmp_path.as_uri()), "x", digest_bytes(DATA)):
        pytest.fail("a file was given")
