"""Folders of slots that were killed: kept for the slots that replace them, of one job only, and never for long."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from statefulspark.storage.local import dead_folders
from statefulspark.storage.local.dead_folders import KEPT_S, DeadFolders, mark_owner
from statefulspark.storage.local.working_folder import open_working_folder

JOB = "s3://bucket/job"

_SLOT = """
import sys
from pathlib import Path
from statefulspark.storage.local.dead_folders import mark_owner
from statefulspark.storage.local.working_folder import open_working_folder
folder = open_working_folder(Path(sys.argv[1]), int(sys.argv[2]))
mark_owner(folder.path, sys.argv[3])
(folder.path / "000001.sst").write_bytes(b"x" * int(sys.argv[4]))
print(folder.path, flush=True)
sys.stdin.read()
"""


def _killed(root: Path, slot: int, job: str = JOB, size: int = 10) -> Path:
    """The folder of a slot whose process was killed."""
    command = [sys.executable, "-c", _SLOT, str(root), str(slot), job, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
    return path


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk that runs the tests may be nearly full."""
    monkeypatch.setattr("statefulspark.storage.local.dead_folders._free_share", lambda _: 0.5)


@pytest.mark.usefixtures("roomy")
def test_a_killed_slots_folder_stays_until_the_slot_has_restored(tmp_path: Path) -> None:
    """Those of other slots stay for these, but not for ever; a slot that dies while it restores leaves it to the next process."""
    first, second = _killed(tmp_path, 0), _killed(tmp_path, 1)
    clock = Clock()
    dead = DeadFolders(tmp_path, JOB, now_s=clock)
    assert sorted(dead.paths) == [first, second]
    mine = open_working_folder(tmp_path, 0)
    dead.release(None)
    assert first.exists()
    dead = DeadFolders(tmp_path, JOB, now_s=clock)
    assert sorted(dead.paths) == [first, second], "the folder of the living slot is not among them"
    dead.release(0)
    dead.release(0)
    assert dead.paths == ()
    clock.now_s += dead_folders.OWN_KEPT_S - 1
    dead.delete_expired()
    assert (first.exists(), second.exists()) == (True, True), "others may still be starting"
    clock.now_s += 1
    dead.delete_expired()
    assert (first.exists(), second.exists(), mine.path.exists()) == (False, True, True)
    clock.now_s += KEPT_S - dead_folders.OWN_KEPT_S - 1
    dead.delete_expired()
    assert second.exists()
    clock.now_s += 1
    dead.delete_expired()
    assert (second.exists(), mine.path.exists()) == (False, True)
    mine.close()


@pytest.mark.usefixtures("roomy")
def test_what_another_process_holds_is_not_deleted(tmp_path: Path) -> None:
    """After a rescale, the files of one old slot are parts of several new ones."""
    left = _killed(tmp_path, 0)
    clock = Clock()
    one, other = DeadFolders(tmp_path, JOB, now_s=clock), DeadFolders(tmp_path, JOB, now_s=clock)
    assert one.paths == other.paths == (left,)
    one.release(0)
    clock.now_s += dead_folders.OWN_KEPT_S
    one.delete_expired()
    assert left.exists()
    other.release(1)
    clock.now_s += KEPT_S
    other.delete_expired()
    assert not left.exists()


@pytest.mark.usefixtures("roomy")
def test_at_the_end_of_the_job_all_goes_at_once(tmp_path: Path) -> None:
    """But for what another process holds."""
    first, second = _killed(tmp_path, 0), _killed(tmp_path, 1)
    dead, other = DeadFolders(tmp_path, JOB), DeadFolders(tmp_path, JOB)
    dead.release(0)
    dead.delete_all()
    assert (first.exists(), second.exists()) == (True, True)
    other.release(0)
    other.delete_all()
    assert (first.exists(), second.exists()) == (False, False)


@pytest.mark.usefixtures("roomy")
def test_only_folders_of_the_job_are_used(tmp_path: Path) -> None:
    """A job of the same name with other storage, a folder without an owner, and links are not; what is no living slot's goes."""
    mine, others, unknown = _killed(tmp_path, 0), _killed(tmp_path, 1, "s3://elsewhere/job"), _killed(tmp_path, 2)
    (unknown / "job").unlink()
    linked = _killed(tmp_path, 3)
    (linked / "job").unlink()
    (linked / "job").symlink_to(mine / "job")
    outside = tmp_path / "outside"
    outside.mkdir()
    mark_owner(outside, JOB)
    (tmp_path / "slot-4-link").symlink_to(outside)
    dead = DeadFolders(tmp_path, JOB)
    assert dead.paths == (mine,)
    assert not others.exists()
    assert not unknown.exists()
    assert not linked.exists()
    assert (outside / "job").exists()
    dead.release(0)


@pytest.mark.usefixtures("roomy")
def test_of_a_slot_that_dies_again_and_again_the_fullest_folder_stays(tmp_path: Path) -> None:
    full, less, least = (_killed(tmp_path, 0, size=size) for size in (500, 40, 3))
    dead = DeadFolders(tmp_path, JOB)
    assert dead.paths == (full,)
    assert not less.exists()
    assert not least.exists()
    dead.release(0)


def test_nothing_is_kept_if_it_is_switched_off_or_the_disk_is_nearly_full(tmp_path: Path) -> None:
    for settings in ({"keep": False}, {"free_share": lambda _: 0.09}):
        left = _killed(tmp_path, 0)
        assert DeadFolders(tmp_path, JOB, **settings).paths == ()
        assert not left.exists()
    assert DeadFolders(tmp_path / "missing", JOB).paths == ()
