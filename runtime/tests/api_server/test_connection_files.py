"""Connection files: private, whole, owned by a living process."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from statefulspark.api_server.run.connection_files import (
    Connection,
    ConnectionFile,
    home_directory,
    read_connection,
    remove_dead_files,
    running_jobs,
)
from statefulspark.errors import ConflictError, InvalidInputError

HERE = Connection("http://127.0.0.1:4040", "0123456789abcdef-token")


def test_written_read_and_removed(tmp_path: Path) -> None:
    """Found by name while the job lives; gone after it."""
    with ConnectionFile(tmp_path, "job-a") as claim:
        claim.write(HERE)
        assert read_connection(tmp_path, "job-a") == HERE
        assert running_jobs(tmp_path) == ["job-a"]
    assert not claim.path.exists()
    assert running_jobs(tmp_path) == []
    with pytest.raises(InvalidInputError, match=r"no job 'job-a' runs on this machine \(running: none"):
        read_connection(tmp_path, "job-a")


def test_only_the_owner_can_read_it_whatever_the_umask(tmp_path: Path) -> None:
    """File 0600 in a folder 0700, and no second copy is left."""
    home = tmp_path / "home"
    before = os.umask(0)
    try:
        with ConnectionFile(home, "job-a") as claim:
            claim.write(HERE)
            assert stat.S_IMODE(claim.path.stat().st_mode) == 0o600
            assert stat.S_IMODE(claim.path.parent.stat().st_mode) == 0o700
            assert sorted(path.name for path in claim.path.parent.iterdir()) == ["job-a.json", "job-a.lock"]
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_open_to_others_is_not_trusted(tmp_path: Path, mode: int) -> None:
    """Somebody else could have read the token or pointed the URL elsewhere."""
    with ConnectionFile(tmp_path, "job-a") as claim:
        claim.write(HERE)
        claim.path.chmod(mode)
        with pytest.raises(InvalidInputError, match="open to others"):
            read_connection(tmp_path, "job-a")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A planted link does not send the client elsewhere."""
    with ConnectionFile(tmp_path, "job-a") as claim:
        other = tmp_path / "planted"
        other.write_text("{}")
        claim.path.symlink_to(other)
        with pytest.raises(InvalidInputError):
            read_connection(tmp_path, "job-a")


def test_a_damaged_file_is_refused_without_its_text(tmp_path: Path) -> None:
    """The text of a damaged file may be a token."""
    with ConnectionFile(tmp_path, "job-a") as claim:
        claim.write(HERE)
        claim.path.write_text('{"url": 5, "token": "0123456789abcdef-token", "pid": 1}')
        with pytest.raises(InvalidInputError, match="damaged") as caught:
            read_connection(tmp_path, "job-a")
        assert HERE.token not in str(caught.value)


def test_a_name_is_held_once_at_a_time(tmp_path: Path) -> None:
    """The second start is refused before it touches the first one's file; after the end the name is free."""
    with ConnectionFile(tmp_path, "job-a") as claim:
        claim.write(HERE)
        with pytest.raises(ConflictError, match="already runs"), ConnectionFile(tmp_path, "job-a"):
            pass
        assert read_connection(tmp_path, "job-a") == HERE
        with ConnectionFile(tmp_path, "job-b"):
            pass
    with ConnectionFile(tmp_path, "job-a"):
        pass


def kill_a_job(home: Path, name: str) -> None:
    code = (
        "import os, sys, pathlib, signal\n"
        "from statefulspark.api_server.run.connection_files import Connection, ConnectionFile\n"
        "claim = ConnectionFile(pathlib.Path(sys.argv[1]), sys.argv[2]).__enter__()\n"
        "claim.write(Connection('http://127.0.0.1:1', '0123456789abcdef'))\n"
        "(pathlib.Path(sys.argv[1]) / 'jobs' / f'{sys.argv[2]}.4711.tmp').touch()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(home), name], check=False, timeout=60)
    assert ended.returncode == -9


def names(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "jobs").iterdir())


def test_nothing_is_left_in_the_home_folder(tmp_path: Path) -> None:
    """Neither by jobs that end, lock files included, nor for long by jobs that were killed; running jobs keep their files."""
    with ConnectionFile(tmp_path, "job-a") as claim:
        claim.write(HERE)
    assert names(tmp_path) == []
    kill_a_job(tmp_path, "job.b")
    assert names(tmp_path) == ["job.b.4711.tmp", "job.b.json", "job.b.lock"]
    (tmp_path / "jobs" / "notes.txt").write_text("not ours")
    with ConnectionFile(tmp_path, "job") as claim:
        claim.write(HERE)
        assert names(tmp_path) == ["job.json", "job.lock", "notes.txt"], "the next start cleans up"
        kill_a_job(tmp_path, "job-a")
        remove_dead_files(tmp_path)
        assert names(tmp_path) == ["job.json", "job.lock", "notes.txt"]
        assert read_connection(tmp_path, "job") == HERE


def test_a_starting_job_keeps_its_name_while_dead_files_are_removed(tmp_path: Path) -> None:
    """It holds the lock and has no connection file yet."""
    with ConnectionFile(tmp_path, "job-a"):
        remove_dead_files(tmp_path)
        assert names(tmp_path) == ["job-a.lock"]
        with pytest.raises(ConflictError), ConnectionFile(tmp_path, "job-a"):
            pass
    remove_dead_files(tmp_path / "absent")


def test_a_lock_on_a_deleted_file_does_not_count(tmp_path: Path) -> None:
    """Starts, ends and cleaning race; at no time do two hold the name."""
    holders, most, failures = [0], [0], []
    guard = threading.Lock()

    def live() -> None:
        for _ in range(15):
            try:
                with ConnectionFile(tmp_path, "job-a") as claim:
                    with guard:
                        holders[0] += 1
                        most[0] = max(most[0], holders[0])
                    claim.write(HERE)
                    if read_connection(tmp_path, "job-a") != HERE:
                        failures.append("another job's file")
                    with guard:
                        holders[0] -= 1
            except ConflictError:
                remove_dead_files(tmp_path)

    threads = [threading.Thread(target=live) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, failures) == ([1], [])
    assert names(tmp_path) == []


def test_a_killed_job_leaves_nothing_that_misleads(tmp_path: Path) -> None:
    """After SIGKILL the file stays, but nobody holds the lock: the name counts as not running and can be claimed again."""
    kill_a_job(tmp_path, "job-a")
    assert (tmp_path / "jobs" / "job-a.json").exists()
    with pytest.raises(InvalidInputError, match="no job 'job-a'"):
        read_connection(tmp_path, "job-a")
    with ConnectionFile(tmp_path, "job-a") as claim:
        assert not claim.path.exists()


@pytest.mark.parametrize("name", ["../etc/passwd", "a/b", "", ".hidden", "UPPER", "x" * 300, "a\x00b"])
def test_a_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    """Names are those of Kubernetes objects."""
    with pytest.raises(InvalidInputError, match="neither a URL nor a job name"):
        read_connection(tmp_path, name)


def test_where_the_files_are(tmp_path: Path) -> None:
    """The first of three places that is given."""
    assert home_directory({"STATEFULSPARK_HOME": "/a", "XDG_RUNTIME_DIR": "/b"}, tmp_path) == Path("/a")
    assert home_directory({"XDG_RUNTIME_DIR": "/b"}, tmp_path) == Path("/b/statefulspark")
    assert home_directory({}, tmp_path) == tmp_path / ".statefulspark"


def test_the_token_is_not_in_a_repr() -> None:
    """Reprs end up in logs."""
    assert HERE.token not in repr(HERE)


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """With the variable that names another one: before the job starts, and when its file is written."""
    (tmp_path / "home").write_text("a file")
    with pytest.raises(InvalidInputError, match=r"STATEFULSPARK_HOME: .*jobs cannot be written.*Free space there, or set it"):
        ConnectionFile(tmp_path / "home", "job-a").__enter__()
    with ConnectionFile(tmp_path / "other", "job-a") as claim:
        claim.path.mkdir()
        with pytest.raises(InvalidInputError, match="STATEFULSPARK_HOME"):
            claim.write(HERE)
        claim.path.rmdir()
