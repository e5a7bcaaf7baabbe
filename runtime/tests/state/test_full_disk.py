"""A disk that was full and has a little room again: RocksDB takes no writes below 64 MiB, so the slot is to be replaced."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from statefulspark.errors import CorruptDataError, UnavailableError
from statefulspark.state.store import full_disk
from statefulspark.state.store.full_disk import FullDisk
from statefulspark.state.store.rocksdb_store import RocksDBStore

_MIB = 1 << 20


class Disk:
    """A file system of 100 MiB in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def leave(self, free_bytes: int) -> None:
        """Fill it but for so much."""
        self._filler.unlink(missing_ok=True)
        found = os.statvfs(self.path)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - free_bytes)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "small"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield Disk(path)
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def _write(store: RocksDBStore) -> None:
    store.write([(b"%08d" % number, os.urandom(100)) for number in range(1000)])
    store.flush()


def _given_up(store: RocksDBStore) -> bool:
    return store.damage is not None


def test_a_store_that_takes_no_writes_although_there_is_room_is_to_be_replaced(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is an error that passes; with 20 MiB free only a new store goes on, so the old one says so and stays that way."""
    store = RocksDBStore(disk.path / "db")
    _write(store)
    for _ in range(2):
        disk.leave(0)  # RocksDB deletes what it could not finish
        with pytest.raises(UnavailableError, match="No space left on device"):
            _write(store)
    assert not _given_up(store)
    disk.leave(20 * _MIB)
    monkeypatch.setattr(full_disk, "_PATIENCE_S", 0.0)
    with pytest.raises(CorruptDataError, match="takes no writes since its disk was full, although there is room again"):
        _write(store)
    assert _given_up(store)
    with pytest.raises(CorruptDataError, match="takes no writes"):
        _write(store)
    with suppress(CorruptDataError):
        store.close()
    store = RocksDBStore(disk.path / "another")
    _write(store)
    store.close()


def test_only_room_that_lasts_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB gets the time to go on by itself, and each moment without room starts it anew; what is buffered needs room as well."""
    now, free = [0.0], [0]
    disk = FullDisk(tmp_path, lambda: now[0])
    monkeypatch.setattr(FullDisk, "_free_bytes", lambda _: free[0])
    found = []
    for at, mib in ((0, 0), (100, 50), (110, 50), (111, 3), (112, 50), (126, 50), (127, 50)):
        now[0], free[0] = float(at), mib * _MIB
        found.append(disk.stuck(10 * _MIB))
    assert found == [False, False, False, False, False, False, True]
    free[0] = 13 * _MIB
    assert not disk.stuck(10 * _MIB)
