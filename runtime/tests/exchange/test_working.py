"""A slot's folder on the local disk: nobody's but its own while it lives, gone soon after it died."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.exchange.working import open_working_folder

_SLOT = """
import sys
from pathlib import Path
from statefulspark.exchange.working import open_working_folder
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
    again = open_working_folder(tmp_path / "job", 1)
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == sorted([mine.path.name, again.path.name])
    assert mine.path.name.startswith("slot-0-")
    mine.close()
    again.close()
    assert list((tmp_path / "job").iterdir()) == []


def test_what_is_no_slots_folder_stays(tmp_path: Path) -> None:
    """A file with a slot's name, and other people's folders."""
    (tmp_path / "slot-notes-pid-x").write_text("mine")
    (tmp_path / "shuffle").mkdir()
    open_working_folder(tmp_path, 0).close()
    assert {path.name for path in tmp_path.iterdir()} == {"slot-notes-pid-x", "shuffle"}


def test_a_root_that_cannot_be_made_names_the_field(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"^spec\.stateBackend\.rocksdb\.localDir: .*file.*choose another folder$"):
        open_working_folder(tmp_path / "file" / "job", 0, field="spec.stateBackend.rocksdb.localDir")
