"""What is said of a local disk that cannot be written: where, why, and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from statefulspark.errors import UnavailableError
from statefulspark.job.spark.query_failures import query_error, slot_error
from statefulspark.rpc.error_codes import error_body, error_of
from statefulspark.storage.local.os_errors import disk_error, local_disk

_REMEDY = r"\. Free space there, or choose another disk: spec\.stateBackend\.rocksdb\.localDir .*TMPDIR"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO])
def test_the_file_is_named_or_else_the_folder(code: int, tmp_path: Path) -> None:
    """Python names the file when it opens one, and nothing when it writes."""
    with (
        pytest.raises(UnavailableError, match=f"^the local disk cannot be written: /file: {os.strerror(code)}{_REMEDY}"),
        local_disk(tmp_path),
    ):
        raise OSError(code, os.strerror(code), "/file")
    with pytest.raises(UnavailableError, match=f"{tmp_path}: {os.strerror(code)}{_REMEDY}"), local_disk(tmp_path):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    "other", [FileNotFoundError(errno.ENOENT, "gone"), ConnectionResetError(errno.ECONNRESET, "reset"), ValueError("x")]
)
def test_other_errors_pass(other: Exception) -> None:
    """A file that is missing is a defect, and a connection is no disk."""
    assert disk_error(other) is None
    with pytest.raises(type(other)), local_disk():
        raise other


def test_an_error_that_nobody_translated_is_still_no_defect_of_ours() -> None:
    """Whatever part of driver or slot it comes from, the caller gets the sentence."""
    found = error_of(error_body(OSError(errno.ENOSPC, "No space left on device", "/work/changelog")))
    assert isinstance(found, UnavailableError)
    assert str(found).startswith("the local disk cannot be written: /work/changelog: No space left on device. Free space")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            "Caused by: java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream.writeBytes",
            "a folder of Spark's",
        ),
        ("java.io.FileNotFoundException: /tmp/blockmgr-1/0c/temp (Read-only file system)", "/tmp/blockmgr-1/0c/temp"),
        ("OSError: [Errno 122] Disk quota exceeded: '/work/slot-3/sort'", "/work/slot-3/sort"),
        ("Error while compiling: java.nio.file.FileSystemException: /w/offsets/.7.tmp: No space left on device", "/w/offsets/.7.tmp"),
    ],
)
def test_what_spark_reports(text: str, where: str) -> None:
    """In a stack trace of the query or of a slot's task."""
    for found in (query_error(Exception(text)), slot_error(3, Exception(text))):
        assert isinstance(found, UnavailableError)
        assert str(found).startswith(f"the local disk cannot be written: {where}: ")
        assert "\n" not in str(found)
