"""A slot's process is killed with SIGKILL, and the next one on the machine takes over the files that are still there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest
from runtime.tests.bad_disk import flip_keeping_times
from runtime.tests.depth import left_to_test_all

from statefulspark.checkpoint.restore.progress import RestoredBytes
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.slots.state import READY
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.errors import StatefulSparkError
from statefulspark.exchange.config import SlotConfig

from .conftest import Start
from .world import Driver, World

pytestmark = pytest.mark.parametrize("world", ["rocksdb"], indirect=True)

_ROOT = Path(__file__).parents[3]
_KEYS = 3_000
_SLOT = """
import sys
import cloudpickle
from statefulspark.slot.process import run_slot
from statefulspark.storage.local import dead_folders
dead_folders.OWN_KEPT_S = float(sys.argv[2])
dead_folders._free_share = lambda _: 0.5  # the disk that runs the tests may be nearly full
run_slot(cloudpickle.loads(sys.stdin.buffer.read()), int(sys.argv[1]), "executor")
"""


class _SlotEndedError(Exception):
    """Before it was ready."""


def _stderr(driver: Driver) -> Path:
    """Path of the standard error of the newest slot."""
    return driver.world.folder / "slot.stderr"


@contextmanager
def _slot(
    driver: Driver, config: SlotConfig, index: int = 0, *, kept_s: float = 30.0
) -> Iterator[tuple[RestoredBytes, subprocess.Popen[bytes]]]:
    """A slot in a process of its own until the block ends, which kills it: what it has restored, and the process."""
    before = driver.coordinator.view().slots[index].epoch
    command = [sys.executable, "-c", _SLOT, str(index), str(kept_s)]
    with (
        _stderr(driver).open("wb") as stderr,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=stderr, env=os.environ | {"PYTHONPATH": str(_ROOT)}) as process,
    ):
        try:
            assert process.stdin is not None
            process.stdin.write(cloudpickle.dumps(config))
            process.stdin.close()
            deadline = time.monotonic() + 60
            while (slot := driver.coordinator.view().slots[index]).epoch == before or slot.state != READY:
                if process.poll() is not None:
                    raise _SlotEndedError
                assert time.monotonic() < deadline, "the slot did not get ready"
                time.sleep(0.02)
            assert slot.restored is not None
            assert slot.restored.downloaded_bytes + slot.restored.local_bytes == slot.restored.total_bytes
            yield slot.restored, process
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.fixture
def driver(world: World, start: Start) -> Driver:
    """A job with one slot, and a checkpoint of a batch that has each key once."""
    world.input += [(f"key-{number}", number) for number in range(_KEYS)]
    driver = start(1)
    _batch(driver, _KEYS)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    driver.slots.pop(0).close()
    return driver


def _batch(driver: Driver, rows: int) -> list[int]:
    """Run the next batch; returns the number that each row got."""
    assert driver.plan(rows) is not None
    return _batch_again(driver)


def _batch_again(driver: Driver) -> list[int]:
    """Run the planned batch, also one that a slot has failed; returns the number that each row got."""
    driver.begin()
    batch = driver.planned()
    driver.run(batch)
    driver.complete()
    return [number for _, kind, number, *_ in driver.world.sink[batch] if kind == "row"]


def _config(driver: Driver, *, local_recovery: bool = True) -> SlotConfig:
    return replace(driver._slot_config, heartbeat_s=0.1, local_recovery=local_recovery)


def _files(world: World, suffix: str) -> list[Path]:
    """Of the folders that slots which died have left."""
    return list((world.folder / "slots").rglob(f"store/*{suffix}"))


def test_after_a_kill_fewer_bytes_are_fetched(world: World, driver: Driver) -> None:
    """All table files of the checkpoint are linked, and the state is what it was. Without local recovery all are fetched."""
    with _slot(driver, _config(driver)) as (first, _):
        assert first.local_bytes == 0
    with _slot(driver, _config(driver, local_recovery=False)) as (without, _):
        assert without == first
    with _slot(driver, _config(driver)) as (second, _):
        assert second.local_bytes > 0
        assert second.downloaded_bytes < without.downloaded_bytes / 2
        assert second.total_bytes == first.total_bytes
        world.input += [(f"key-{number}", number) for number in range(_KEYS)]
        assert _batch(driver, _KEYS) == [2] * _KEYS
    with _slot(driver, _config(driver), kept_s=0.1) as (third, _):
        assert third.local_bytes == second.local_bytes, "they were linked from the folder of the second process"
        assert third.downloaded_bytes > second.downloaded_bytes, "and the changelog of the last batch was fetched"
        deadline = time.monotonic() + 60
        while len(list((world.folder / "slots").glob("*/*/slot-*"))) > 1:
            assert time.monotonic() < deadline, "the folders of the dead slots are still there"
            time.sleep(0.05)


def test_a_rescale_on_the_machine_fetches_no_table_file(world: World, driver: Driver) -> None:
    """The old slots leave their files to the new ones, of which each needs a part."""
    with _slot(driver, _config(driver)) as (first, process):
        driver.coordinator.slots.stop(keep_files=True)
        assert process.wait(60) == 0
    driver.coordinator.slots.replace(SlotTable(2, slots_per_executor=None))
    config = replace(_config(driver), parallelism=2)
    # Both start before the first one deletes what it no longer needs.
    with _slot(driver, config, 1) as (right, _), _slot(driver, config, 0) as (left, _):
        assert left.local_bytes == right.local_bytes > first.total_bytes / 2


def test_a_job_that_ends_leaves_no_files(world: World, driver: Driver) -> None:
    """Neither of its slots nor of those that had died."""
    with _slot(driver, _config(driver)):
        pass
    assert _files(world, "CURRENT")
    with _slot(driver, _config(driver)) as (_, process):
        driver.coordinator.slots.stop()
        assert process.wait(60) == 0
    assert not _files(world, "")
    assert list((world.folder / "slots").glob("*/*/*")) == []


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage", [_flip, *left_to_test_all((lambda path: path.write_bytes(path.read_bytes()[:-1]), Path.unlink))], ids=["flip", "cut", "gone"]
)
def test_a_bad_disk_does_not_come_in_through_this_door(world: World, driver: Driver, damage: Callable[[Path], object]) -> None:
    """What the dead slot has left is damaged: it is fetched, and the state is right."""
    with _slot(driver, _config(driver)) as (first, _):
        pass
    for path in _files(world, ".sst"):
        damage(path)
    with _slot(driver, _config(driver)) as (second, _):
        assert second == first
        world.input += [(f"key-{number}", number) for number in range(_KEYS)]
        assert _batch(driver, _KEYS) == [2] * _KEYS


def _ends_damaged(driver: Driver, process: subprocess.Popen[bytes]) -> None:
    """A batch fails on the damage, and the slot ends, because it cannot mend its store; at once if it reads ahead of the batch."""
    batch = driver.plan(_KEYS)
    assert batch is not None
    driver.begin()
    with pytest.raises(StatefulSparkError, match=r"the state store is damaged|slot 0 is still lost"):
        driver.run(batch)
    assert process.wait(60) != 0
    assert "CorruptDataError: " in _stderr(driver).read_text()


def test_the_disk_of_a_slot_that_runs_goes_bad(world: World, driver: Driver) -> None:
    """The slot that follows takes what is sound on the disk, and downloads the rest."""
    with _slot(driver, _config(driver)) as (_, process):
        for path in _files(world, ".sst"):
            flip_keeping_times(path)
        world.input += [(f"key-{number}", number) for number in range(_KEYS)]
        _ends_damaged(driver, process)
    with _slot(driver, _config(driver)) as (second, _):
        assert second.local_bytes == 0
        assert _batch_again(driver) == [2] * _KEYS


def test_slots_that_are_told_to_stop_note_checksums(world: World, driver: Driver) -> None:
    """Those that follow use them once; whoever starts later computes them."""
    with _slot(driver, _config(driver)) as (_, process):
        driver.coordinator.slots.stop(keep_files=True)
        assert process.wait(60) == 0
    (folder,) = {path.parents[2] for path in _files(world, "CURRENT")}
    assert (folder / "digests.json").exists()
    driver.coordinator.slots.replace(SlotTable(1, slots_per_executor=None))
    with _slot(driver, _config(driver)) as (second, _):
        assert second.local_bytes > 0
        assert not (folder / "digests.json").exists()
        world.input += [(f"key-{number}", number) for number in range(_KEYS)]
        assert _batch(driver, _KEYS) == [2] * _KEYS


def test_the_disk_goes_bad_after_the_checksums_were_noted(world: World, driver: Driver) -> None:
    """The slot that follows believes them, finds the damage when it reads, and ends; the one after it computes them."""
    _stopped_and_damaged(world, driver, 0.5)
    with pytest.raises(_SlotEndedError), _slot(driver, _config(driver)):
        pass  # it reads its timers before it is ready
    with _slot(driver, _config(driver)) as (third, _):
        assert third.local_bytes == 0
        world.input += [(f"key-{number}", number) for number in range(_KEYS)]
        assert _batch(driver, _KEYS) == [2] * _KEYS


def test_the_disk_goes_bad_where_the_restore_reads(world: World, driver: Driver) -> None:
    """The slot that follows restores once more, and downloads what is damaged; the checkpoint is not blamed."""
    _stopped_and_damaged(world, driver, 1.0)
    with _slot(driver, _config(driver)) as (second, _):
        assert second.local_bytes == 0
        world.input += [(f"key-{number}", number) for number in range(_KEYS)]
        assert _batch(driver, _KEYS) == [2] * _KEYS


def _stopped_and_damaged(world: World, driver: Driver, share: float) -> None:
    """A slot is told to stop because another follows, and the disk damages what it leaves."""
    with _slot(driver, _config(driver)) as (_, process):
        driver.coordinator.slots.stop(keep_files=True)
        assert process.wait(60) == 0
    for path in _files(world, ".sst"):
        flip_keeping_times(path, share)
    driver.coordinator.slots.replace(SlotTable(1, slots_per_executor=None))
