"""A slot's folder on the local disk: nobody's but its own while it lives, gone soon after it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.storage.local.dead_folders import DeadFolders
from statefulspark.storage.local.working_folder import open_scratch_folder, open_socket_folder, open_working_folder, private_folder

_SLOT = """
import sys
from pathlib import Path
from statefulspark.storage.local.working_folder import open_working_folder
folder = open_working_folder(Path(sys.argv[1]), 1)
(folder.path / "CURRENT").write_text("state")
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_a_living_slots_folder_stays_whatever_its_process_number_and_a_killed_ones_goes(tmp_path: Path) -> None:
    """Containers that share a folder do not see each other's processes: nothing but the lock can tell who lives."""
    command = [sys.executable, "-c", _SLOT, str(tmp_path / "job")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        # As seen from another container: no such process here.
        assert str(other.pid) not in theirs.name
        mine = open_working_folder(tmp_path / "job", 0)
        assert (theirs / "CURRENT").read_text() == "state"
        other.send_signal(signal.SIGKILL)
        other.wait()
    DeadFolders(tmp_path / "job", "file:///job")
    again = open_working_folder(tmp_path / "job", 1)
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == sorted([mine.path.name, again.path.name])
    assert mine.path.name.startswith("slot-0-")
    mine.close()
    again.close()
    assert list((tmp_path / "job").iterdir()) == []


def test_the_socket_folder_of_a_killed_slot_goes_and_a_living_ones_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each kill leaves one in the system's folder for temporary files, for ever."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = _SLOT.replace("open_working_folder(Path(sys.argv[1]), 1)", "open_socket_folder(1)").replace(
        "open_working_folder", "open_socket_folder"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)}) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        mine = open_socket_folder(0)
        assert {path.name for path in tmp_path.iterdir()} == {theirs.name, mine.path.name}
        other.send_signal(signal.SIGKILL)
        other.wait()
    again = open_socket_folder(1)
    assert {path.name for path in tmp_path.iterdir()} == {mine.path.name, again.path.name}
    assert all(path.name.startswith("ssp-") for path in tmp_path.iterdir())
    mine.close()
    again.close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_slots_folder_stays(tmp_path: Path) -> None:
    """A file with a slot's name, and other people's folders."""
    (tmp_path / "slot-notes-pid-x").write_text("mine")
    (tmp_path / "shuffle").mkdir()
    open_working_folder(tmp_path, 0).close()
    DeadFolders(tmp_path, "file:///job")
    assert {path.name for path in tmp_path.iterdir()} == {"slot-notes-pid-x", "shuffle"}


def test_a_root_that_cannot_be_made_names_the_field(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"^spec\.stateBackend\.rocksdb\.localDir: .*file.*choose another folder$"):
        open_working_folder(tmp_path / "file" / "job", 0, field="spec.stateBackend.rocksdb.localDir")


def test_a_private_folder_is_this_users_alone(tmp_path: Path) -> None:
    """Made with no rights for others, and taken again by the next slot."""
    folder = tmp_path / "above" / "statefulspark-0"
    assert private_folder(folder) == private_folder(folder) == folder
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("attack", ["owner", "link", "group", "everybody", "file"])
def test_a_folder_that_somebody_else_has_prepared_is_refused(tmp_path: Path, attack: str) -> None:
    """Everybody may make folders in /tmp: what lies there was not made by this user."""
    folder = tmp_path / "statefulspark-0"
    if attack == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif attack == "file":
        folder.write_text("")
    else:
        folder.mkdir(mode=0o700)
        folder.chmod({"owner": 0o700, "group": 0o770, "everybody": 0o777}[attack])
    if attack == "owner" and os.geteuid() == 0:
        os.chown(folder, 12345, 12345)
    elif attack == "owner":
        folder = Path("/usr")  # root's; only root can give a folder away
    with pytest.raises(InvalidInputError, match=r"local|is not a folder that only this user can write"):
        private_folder(folder)


def test_closing_a_folder_twice_closes_no_file_of_others(tmp_path: Path) -> None:
    """The system gives the number of a closed descriptor to the next file that is opened."""
    folder = open_working_folder(tmp_path, 0)
    folder.close()
    with (tmp_path / "other").open("w") as other:
        folder.close()
        other.write("still open")
    assert (tmp_path / "other").read_text() == "still open"


def test_the_scratch_folder_of_a_killed_reader_goes_and_a_living_ones_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a whole slot's files: workers of the data source are killed with their query."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = _SLOT.replace("open_working_folder(Path(sys.argv[1]), 1)", "open_scratch_folder()").replace(
        "open_working_folder", "open_scratch_folder"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)}) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        mine = open_scratch_folder()
        assert {path.name for path in tmp_path.iterdir()} == {theirs.name, mine.path.name}
        other.send_signal(signal.SIGKILL)
        other.wait()
    open_scratch_folder().close()
    assert [path.name for path in tmp_path.iterdir()] == [mine.path.name]
    mine.close()
    assert list(tmp_path.iterdir()) == []


def test_the_scratch_folder_of_an_earlier_release_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no lock on its folder, so whether it still reads cannot be told; a store without files would read as empty."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    theirs = tmp_path / "statefulspark-inspect-k3x_9a2b"
    theirs.mkdir()
    open_scratch_folder().close()
    assert theirs.exists()
