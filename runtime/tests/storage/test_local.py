"""LocalStore beyond the contract: crashes, full disks, refused rights, races between processes."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.keys import TEMPORARY_PREFIX
from statefulspark.storage.local import store as local
from statefulspark.storage.local.folders import STALE_S
from statefulspark.storage.local.store import LocalStore

PROCESSES = 4


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def test_relative_root_is_refused() -> None:
    """Its meaning would depend on the process."""
    with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*absolute"):
        LocalStore(Path("relative"))


def test_url_is_encoded(tmp_path: Path) -> None:
    """Blanks and question marks survive a way through open_store."""
    assert LocalStore(tmp_path / "a b?").url == f"file://{tmp_path}/a%20b%3F"


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (errno.ENOSPC, UnavailableError, r"checkpointing\.dir.*No space.*Free space"),
        (errno.EDQUOT, UnavailableError, r"checkpointing\.dir.*quota"),
        (errno.EIO, UnavailableError, r"checkpointing\.dir.*Input/output"),
        (errno.ESTALE, UnavailableError, r"checkpointing\.dir.*Stale"),
        (errno.EACCES, InvalidInputError, r"checkpointing\.dir.*denied.*write access"),
        (errno.EROFS, UnavailableError, r"checkpointing\.dir.*Read-only.*writable"),
    ],
)
def test_what_the_system_refuses(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int, error: type[StatefulSparkError], text: str
) -> None:
    """The error says field, reason and remedy; nothing half-written stays, what was there stays."""
    store.put("a/b", b"old")

    def refuse(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    for write in (store.put, store.put_if_absent):
        with pytest.raises(error, match=text):
            write("a/b", b"new")
        with pytest.raises(error, match=text):
            write("a/c", b"new")
    assert files(store.root) == ["a/b"]
    assert store.get("a/b") == b"old"


def test_full_working_disk_is_not_blamed_on_the_store(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that does not fit names the local disk, and leaves the old file alone."""
    store.put("a", b"new")
    (tmp_path / "target").write_bytes(b"old")

    def refuse(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local, "write_hashed", refuse)
    with pytest.raises(UnavailableError, match=f"local working directory: {tmp_path}/target"):
        store.get_file("a", tmp_path / "target")
    assert files(tmp_path) == ["store/a", "target"]
    assert (tmp_path / "target").read_bytes() == b"old"


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_file_system_without_links(store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Creating exactly once is impossible there: said, not imitated."""

    def refuse(*_args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(InvalidInputError, match=r"hard links.*s3://"):
        store.put_if_absent("a", b"x")
    assert files(store.root) == []


def test_file_and_folder_collide(store: LocalStore) -> None:
    """A key below an object, and an object at a folder, are refused by name and leave both as they were."""
    store.put("a", b"x")
    store.put("b/c", b"y")
    for write in (store.put, store.put_if_absent):
        with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*collide"):
            write("a/b", b"z")
        with pytest.raises((InvalidInputError, UnavailableError)):
            write("b", b"z")
    assert files(store.root) == ["a", "b/c"]


def test_put_if_absent_when_the_winner_vanishes(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name was taken at the link and free at the look: the loser tries again instead of failing."""
    link = os.link
    answers = iter([FileExistsError(errno.EEXIST, "exists")] * 3)

    def racing(source: Path, target: Path) -> None:
        for answer in answers:
            raise answer
        link(source, target)

    monkeypatch.setattr(os, "link", racing)
    store.put_if_absent("a", b"x")
    assert store.get("a") == b"x"


def test_temporary_files_are_invisible_and_die_with_their_folder(store: LocalStore) -> None:
    """What a dead writer left is no object; when the last object goes, it goes too once it is stale, not before."""
    store.put("a/b/c", b"x")
    left = store.root / "a" / "b" / f"{TEMPORARY_PREFIX}dead"
    left.write_bytes(b"half")
    assert [info.key for info in store.list("")] == ["a/b/c"]
    store.delete(["a/b/c"])
    assert store.list_folders("") == []
    assert left.exists()
    old_s = left.stat().st_mtime - STALE_S - 1
    os.utime(left, (old_s, old_s))
    store.delete(["a/b/c"])
    assert store.root.is_dir()
    assert list(store.root.iterdir()) == []


def test_empty_folders_are_pruned_up_to_the_root(store: LocalStore) -> None:
    """Neighbours keep their folders."""
    store.put("a/b/c/d", b"x")
    store.put("a/e", b"x")
    store.delete(["a/b/c/d"])
    assert [path.name for path in (store.root / "a").iterdir()] == ["e"]
    store.delete(["a/e"])
    assert list(store.root.iterdir()) == []


def test_writers_and_deleters_of_one_folder(store: LocalStore) -> None:
    """A prune that removes a folder under a writer's feet never fails the writer."""
    failures: list[BaseException] = []

    def churn(name: str) -> None:
        try:
            for i in range(150):
                store.put_if_absent(f"a/b/{name}/{i}", b"x")
                store.list("a/")
                store.delete([f"a/b/{name}/{i}"])
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=churn, args=(str(i % 2) + "x" * (i // 2),), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert list(store.root.iterdir()) == []


def claim(store: LocalStore, name: str, rounds: int) -> list[int]:
    """Run in a process of its own: try to be first at each round."""
    won = []
    for i in range(rounds):
        try:
            store.put_if_absent(f"attempts/{i:08d}", f"{name} {i}".encode())
        except ConflictError:
            continue
        won.append(i)
    return won


def test_one_winner_among_processes(store: LocalStore) -> None:
    """Each object is created by exactly one of several processes, and holds its bytes."""
    rounds = 200
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        wins = pool.starmap(claim, [(store, f"process {i}", rounds) for i in range(PROCESSES)], chunksize=1)
    assert sorted(i for won in wins for i in won) == list(range(rounds))
    for i, won in enumerate(wins):
        assert all(store.get(f"attempts/{j:08d}") == f"process {i} {j}".encode() for j in won)


WRITER = """
import sys
from pathlib import Path
from statefulspark.storage.local.store import LocalStore
store = LocalStore(Path(sys.argv[1]))
for i in range(10_000):
    data = bytes([i % 256]) * 300_000
    store.put("replaced", data)
    store.put_if_absent(f"created/{i}", data)
    print(i, flush=True)
"""


@pytest.mark.kill
@pytest.mark.parametrize("lines", [1, 2, 5, 9])
def test_killed_writer(store: LocalStore, lines: int) -> None:
    """SIGKILL while writing: every object that is visible is whole, and everything that was reported is there."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(store.root)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        process.kill()
        reported = lines + len(process.stdout.read().splitlines())
    found = store.list("")
    assert {f"created/{i}" for i in range(reported)} <= {info.key for info in found}
    for info in found:
        data = store.get(info.key)
        assert len(data) == 300_000
        assert len(set(data)) == 1


def test_links_are_not_listed_and_nothing_is_deleted_through_them(store: LocalStore, tmp_path: Path) -> None:
    """On a shared volume others may put a link into a job's folder: to a folder of someone else, to a file, or to itself."""
    other = tmp_path / "other"
    (other / "empty").mkdir(parents=True)
    (other / "precious").write_bytes(b"x")
    stale = other / "empty" / f"{TEMPORARY_PREFIX}0"
    stale.write_bytes(b"")
    os.utime(stale, (0, 0))
    store.put("a/own", b"x")
    (store.root / "a" / "elsewhere").symlink_to(other)
    (store.root / "a" / "file").symlink_to(other / "precious")
    (store.root / "top").symlink_to(other)
    assert [info.key for info in store.list("")] == ["a/own"]
    assert store.list("top/") == store.list("a/elsewhere/") == []
    assert store.list_folders("") == ["a"]
    store.delete(["a/elsewhere/precious", "top/precious", "top/empty/gone", "a/elsewhere/empty/gone", "a/elsewhere/gone", "a/file"])
    assert (other / "precious").read_bytes() == b"x"
    assert stale.exists()
    assert not (store.root / "a" / "file").is_symlink(), "the link itself is in the store's folder"
    store.delete(["a/elsewhere", "top", "a/own"])
    assert (other / "precious").read_bytes() == b"x"
    assert list(store.root.iterdir()) == []


def test_nested_links_do_not_multiply_paths(store: LocalStore) -> None:
    """42 links of which each folder has two to the next are 2²¹ paths."""
    store.put("0/x", b"")
    for number in range(21):
        folder = store.root / str(number)
        folder.mkdir(exist_ok=True)
        (folder / "left").symlink_to(store.root / str(number + 1))
        (folder / "right").symlink_to(store.root / str(number + 1))
    assert [info.key for info in store.list("")] == ["0/x"]


def test_a_root_that_is_a_link_is_used(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    store = LocalStore(tmp_path / "link")
    store.put("a/b", b"x")
    assert [info.key for info in store.list("a/")] == ["a/b"]
    store.delete(["a/b"])
    assert list((tmp_path / "disk").iterdir()) == []
