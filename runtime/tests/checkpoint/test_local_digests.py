"""Checksums that a slot which stops in good order notes of its files: used for files that are unchanged since, and only by those who follow at once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from statefulspark.checkpoint.formats.digests import FileDigest, digest_bytes, digest_file
from statefulspark.checkpoint.restore import local_digests, local_files
from statefulspark.checkpoint.restore.local_digests import TRUSTED_S, forget_digests, note_digests, noted_digests
from statefulspark.checkpoint.restore.local_files import LocalFiles, with_local_files
from statefulspark.errors import CorruptDataError, UnavailableError
from statefulspark.storage.hashes import HashAlgorithm

_FILES = {"000007.sst": b"entries" * 9, "000008.sst": b"others"}
_DIGESTS = {name: digest_bytes(data) for name, data in _FILES.items()}


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The working folder of a slot that has stopped and noted its checksums."""
    folder = tmp_path / "slot-0-a"
    store = folder / "state" / "store"
    store.mkdir(parents=True)
    for name, data in _FILES.items():
        (store / name).write_bytes(data)
    note_digests(folder, store, _DIGESTS)
    return folder


def _noted(folder: Path) -> set[FileDigest]:
    return set(noted_digests(folder).values())


def test_noted_files_are_linked_without_being_read(left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def counted(path: Path, algorithm: HashAlgorithm) -> FileDigest:
        hashed.append(path.name)
        return digest_file(path, algorithm)

    monkeypatch.setattr(local_files, "digest_file", counted)
    local = LocalFiles([left])
    assert all(local.link(name, digest, tmp_path / name) for name, digest in _DIGESTS.items())
    assert hashed == []
    assert local.has_trusted
    without = LocalFiles([left], trust_notes=False)
    assert without.link("000007.sst", _DIGESTS["000007.sst"], tmp_path / "again")
    assert hashed == ["again"]
    assert not without.has_trusted


def test_files_of_an_earlier_releases_checkpoint_are_hashed_as_it_did(left: Path, tmp_path: Path) -> None:
    """Notes of another algorithm tell nothing of them: each file is read, and only the one with the same bytes is linked."""
    local = LocalFiles([left])
    for name, other in (("000007.sst", "000008.sst"), ("000008.sst", "000007.sst")):
        expected = digest_bytes(_FILES[name], HashAlgorithm.SHA256)
        assert local.link(name, expected, tmp_path / name)
        assert not local.link(
            name, FileDigest(expected.size_bytes, digest_bytes(_FILES[other], HashAlgorithm.SHA256).checksum), tmp_path / "x"
        )
    assert not local.has_trusted


def test_a_noted_checksum_that_is_not_the_checkpoints_links_nothing(left: Path, tmp_path: Path) -> None:
    """Two stores may have files with the same name and size."""
    wanted = digest_bytes(b"x" * len(_FILES["000008.sst"]))
    assert not LocalFiles([left]).link("000008.sst", wanted, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def _keeping_times(path: Path, data: bytes) -> None:
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _written(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def _longer(path: Path) -> None:
    _keeping_times(path, path.read_bytes() + b"z")


def _replaced(path: Path) -> None:
    """By another file with the same size and times."""
    path.with_name("old").hardlink_to(path)
    path.unlink()
    path.write_bytes(b"z" * path.with_name("old").stat().st_size)
    old = path.with_name("old").stat()
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))


def _symbolic(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("change", [_written, _longer, _replaced, _symbolic, Path.unlink], ids=lambda change: change.__name__.strip("_"))
def test_a_file_that_was_touched_since_is_not_trusted(left: Path, change: Callable[[Path], object]) -> None:
    time.sleep(0.02)  # longer than a tick of the file system's clock
    change(left / "state" / "store" / "000007.sst")
    assert _noted(left) == {_DIGESTS["000008.sst"]}


@pytest.mark.parametrize(
    "notes", [b"", b"{", b"null", b"\xff\xfe", b'{"version": 1}', b'{"version": 1, "files": [{"path": "state/store/000007.sst"}]}']
)
def test_damaged_notes_are_as_good_as_none(left: Path, notes: bytes) -> None:
    (left / "digests.json").write_bytes(notes)
    assert _noted(left) == set()


@pytest.mark.parametrize("version", [0, 2])
def test_notes_of_another_version_are_not_used(left: Path, version: int) -> None:
    notes = json.loads((left / "digests.json").read_text())
    (left / "digests.json").write_text(json.dumps(notes | {"version": version}))
    assert _noted(left) == set()


def test_notes_make_no_file_outside_the_folder_a_candidate(left: Path, tmp_path: Path) -> None:
    outside = tmp_path / "000009.sst"
    outside.write_bytes(b"outside")
    status = outside.stat()
    noted = {
        "path": "../000009.sst",
        "size_bytes": status.st_size,
        "modified_ns": status.st_mtime_ns,
        "inode": status.st_ino,
        "checksum": digest_bytes(b"outside").checksum,
    }
    (left / "digests.json").write_text(json.dumps({"version": 1, "files": [noted]}))
    assert not LocalFiles([left]).link("000009.sst", digest_bytes(b"outside"), tmp_path / "target")


@pytest.mark.parametrize(("age_s", "trusted"), [(0.0, 2), (TRUSTED_S, 2), (TRUSTED_S + 1, 0), (-1.0, 0)])
def test_notes_are_used_by_those_who_follow_at_once(left: Path, age_s: float, trusted: int) -> None:
    """A clock that was set back makes them old too."""
    now_s = (left / "digests.json").stat().st_mtime + age_s
    assert len(noted_digests(left, now_s=lambda: now_s)) == trusted


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large"])
def test_only_a_small_regular_file_is_read(left: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = left / "digests.json"
    if kind == "large":
        monkeypatch.setattr(local_digests, "_BYTES_MAX", path.stat().st_size - 1)
    else:
        path.rename(left / "elsewhere")
    if kind == "link":
        path.symlink_to("elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    assert _noted(left) == set()


def test_a_disk_that_refuses_the_notes_fails_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "1.sst").write_bytes(b"x")
    (tmp_path / "new-digests.json").mkdir()  # so that the file cannot be written
    note_digests(tmp_path, store, {"1.sst": digest_bytes(b"x")})
    assert _noted(tmp_path) == set()


def test_files_that_are_gone_or_different_are_not_noted(tmp_path: Path) -> None:
    """The uploader knows files that RocksDB has deleted since."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "1.sst").write_bytes(b"xy")
    note_digests(tmp_path, store, {"1.sst": digest_bytes(b"x"), "2.sst": digest_bytes(b"gone")})
    assert _noted(tmp_path) == set()


def test_damage_that_notes_hide_is_not_taken_for_a_damaged_checkpoint(left: Path, tmp_path: Path) -> None:
    """A bad disk returns other bytes and says nothing: the restore runs again and hashes every file."""
    path = left / "state" / "store" / "000007.sst"
    _keeping_times(path, b"E" + path.read_bytes()[1:])
    directory = tmp_path / "new"
    linked: list[list[bool]] = []

    def restore(local: LocalFiles) -> str:
        directory.mkdir()
        linked.append([local.link(name, digest, directory / name) for name, digest in _DIGESTS.items()])
        if any(each.read_bytes() != _FILES[each.name] for each in directory.iterdir()):
            raise CorruptDataError("the state store is damaged", path=str(directory))
        return "restored"

    assert with_local_files([left], directory, restore) == "restored"
    assert linked == [[True, True], [False, True]]
    assert _noted(left) == set()


def test_a_damaged_checkpoint_is_told_at_once(left: Path, tmp_path: Path) -> None:
    """Where nothing was trusted, a second restore could find nothing else."""
    forget_digests([left])
    calls: list[LocalFiles] = []

    def restore(local: LocalFiles) -> None:
        calls.append(local)
        assert local.link("000007.sst", _DIGESTS["000007.sst"], tmp_path / "target")
        raise CorruptDataError("the file's contents have changed since it was written", path="shared/1")

    with pytest.raises(CorruptDataError, match="shared/1"):
        with_local_files([left], tmp_path / "new", restore)
    assert len(calls) == 1


def test_whoever_comes_later_hashes(left: Path, tmp_path: Path) -> None:
    with_local_files([left], tmp_path / "new", lambda _: None)
    assert _noted(left) == set()


@pytest.mark.parametrize("error", [UnavailableError("503"), KeyboardInterrupt()], ids=["failed", "interrupted"])
def test_whoever_comes_after_a_failure_hashes(left: Path, tmp_path: Path, error: BaseException) -> None:
    def restore(_: LocalFiles) -> None:
        raise error

    with pytest.raises(type(error)):
        with_local_files([left], tmp_path / "new", restore)
    assert _noted(left) == set()
