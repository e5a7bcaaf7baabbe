"""A local disk that is full: the error says where, why and what to do, and once there is room the job goes on with nothing lost."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import UnavailableError
from statefulspark.storage.local.store import LocalStore
from statefulspark.storage.retrying import RetryingStore, RetryPolicy

from .conftest import Start
from .test_replaced_drivers import check_all_rows_count_once, finish, run
from .world import World

_SIZE_BYTES = 2 << 20
_SENTENCE = r"^the local disk cannot be written: /.+: No space left on device\. Free space there, or choose another disk"
_PAYLOAD = "x" * 3000


class SmallDisk:
    """A file system in memory that can be filled; without the right to mount one, changelogs behave as if it were full."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "tmpfs", str(path)]
        self.mounted = os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True).returncode == 0
        self._filler = path / "filler"
        self._monkeypatch = monkeypatch

    def fill(self) -> None:
        """Leave no room."""
        if not self.mounted:
            self._monkeypatch.setattr("statefulspark.slot.keyed_step.ChangelogWriter", _no_room)
            return
        with self._filler.open("wb") as file:
            free = os.statvfs(self.path)
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_bsize)

    def free(self) -> None:
        """Make room again."""
        self._monkeypatch.undo()
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Take the file system away, even if somebody still has a file open there."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)


def _no_room(path: Path, _: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        disk = SmallDisk(tmp_path / "small", monkeypatch)
        yield disk
        disk.close()


def test_a_slot_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(world: World, start: Start, disk: SmallDisk) -> None:
    """In the middle of batches, at a checkpoint, and when a slot restores."""
    world.disk = disk.path
    world.store = RetryingStore(LocalStore(world.folder / "storage" / "job"), RetryPolicy(budget_s=0.2, wait_s_first=0.05))
    world.input = [(f"key-{n % 5}{_PAYLOAD}", 10 * n) for n in range(48)]
    driver = start(1)
    run(driver, 8)
    batch = driver.plan(8)
    assert batch is not None
    disk.fill()
    with pytest.raises(UnavailableError, match=_SENTENCE):
        driver.run(batch)
    if disk.mounted:
        with pytest.raises(UnavailableError, match="No space left"):
            driver.start_slot(0)
    disk.free()
    driver.start_slot(0)
    driver.coordinator.query.before_start()
    driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    finish(driver)
    check_all_rows_count_once(world)
