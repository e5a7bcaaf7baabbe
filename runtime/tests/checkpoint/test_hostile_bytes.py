"""Every reader of stored bytes answers hostile ones with CorruptDataError, in bounded memory."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from statefulspark.checkpoint.catalog import list_checkpoints
from statefulspark.checkpoint.formats.compression import compress, decompress
from statefulspark.checkpoint.formats.digests import FileDigest, digest_bytes
from statefulspark.checkpoint.formats.documents import decode_document
from statefulspark.checkpoint.formats.records import AttemptClaim
from statefulspark.checkpoint.transfers import download_verified, verified_file
from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.entries import read_entries
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

from . import hostile_bytes

PEAK_MIB = 700
"""The interpreter, Arrow and what builds the bombs take 370 MiB."""


def test_random_bytes_mutations_and_bombs_are_damage(tmp_path: Path) -> None:
    """A frame of 32 KiB took 3.75 GiB, and a document of 990 levels raised RecursionError."""
    command = [sys.executable, hostile_bytes.__file__, str(tmp_path), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert said["failures"] == []
    assert said["peak_mib"] < PEAK_MIB


@pytest.mark.parametrize(("size", "entries"), [(0, 0), (10, 1), (64 << 20, 1), (80 << 20, 3), (1 << 20, 600_000)])
def test_what_compresses_well_is_still_read(size: int, entries: int) -> None:
    """A value of a gigabyte of zeros is state like any other: the writer makes its stored bytes long enough for the reader's bound."""
    raw = bytes(size)
    stored = compress(raw, entries)
    assert decompress(stored, size, entries) == raw
    assert len(stored) <= 8192 + (size + 128 * entries) // 1024


def test_a_planted_checkpoint_of_many_levels_is_damaged(tmp_path: Path) -> None:
    """It is listed as other damage is, beside the job's own checkpoints."""
    folder = tmp_path / "job" / "chk-999"
    folder.mkdir(parents=True)
    (folder / "_metadata").write_bytes(b'{"format_version":1,"body":' + b'{"a":' * 990 + b"1" + b"}" * 991)
    found = list_checkpoints((tmp_path / "job").as_uri(), open_store)
    assert [each.status for each in found] == ["damaged"]


def test_a_sparse_object_is_damage_and_not_read(tmp_path: Path) -> None:
    """A terabyte that costs nobody anything was a MemoryError, which kept the job from starting, or filled the disk of who verified it."""
    folder = tmp_path / "job" / "chk-999"
    folder.mkdir(parents=True)
    sparse = folder / "_metadata"
    sparse.touch()
    os.truncate(sparse, 1 << 40)
    found = list_checkpoints((tmp_path / "job").as_uri(), open_store)
    assert [each.status for each in found] == ["damaged"]
    for read in (download_verified, opened):
        with pytest.raises(CorruptDataError):
            read(open_store(folder.as_uri()), "_metadata", tmp_path / "copy", digest_bytes(b"x"))


def test_a_pipe_or_a_device_is_no_object(tmp_path: Path) -> None:
    """Nobody ever wrote to the pipe, so its reader waited for ever; zeros have no end."""
    (tmp_path / "job").mkdir()
    os.mkfifo(tmp_path / "job" / "pipe")
    (tmp_path / "job" / "zero").symlink_to("/dev/zero")
    store = open_store((tmp_path / "job").as_uri())
    for key in ("pipe", "zero"):
        with pytest.raises(KeyError):
            store.get(key)
        with pytest.raises(KeyError):
            store.get_file(key, tmp_path / "copy")
        for read in (download_verified, opened):
            with pytest.raises(CorruptDataError, match="missing"):
                read(store, key, tmp_path / "copy", digest_bytes(b""))


def opened(store: ObjectStore, key: str, _: Path, expected: FileDigest) -> None:
    """Read an object in place."""
    with verified_file(store, key, expected):
        pass


def test_levels_of_a_document() -> None:
    for levels in (100, 990, 50_000):
        with pytest.raises(CorruptDataError):
            decode_document(
                b'{"format_version":1,"kind":"attempt","body":' + b"[" * levels + b"]" * levels + b"}", "attempt", AttemptClaim, path="x"
            )


def test_a_length_of_a_record_is_compared_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "entries").write_bytes(b"SSPE\x01" + struct.pack(">II", 0xFFFFFFF0, 0xFFFFFFF0))
    with pytest.raises(CorruptDataError, match="truncated"):
        list(read_entries(tmp_path / "entries"))
