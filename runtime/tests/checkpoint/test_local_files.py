"""Files that dead slots have left: linked if they are the checkpoint's byte for byte, downloaded if anything is wrong with them."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature
from runtime.tests.depth import examples

from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.restore import local_files
from statefulspark.checkpoint.restore.local_digests import note_digests
from statefulspark.checkpoint.restore.local_files import LocalFiles, is_final
from statefulspark.state.store.base import Change
from statefulspark.storage.open import open_store


def _missing(path: Path) -> None:
    path.unlink()


def _shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def _link(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _renamed(path: Path) -> None:
    path.rename(path.with_name(f"9{path.name}"))


def _same(path: Path) -> None:
    """Another file with the same contents."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


_DAMAGES = (_missing, _shorter, _flipped, _link, _folder, _pipe, _renamed)


def _job(folder: Path, flushes: list[list[Change]]) -> Miniature:
    """A job with one checkpoint of two slots, which has a file per flush; its slots have died."""
    (folder / "local").mkdir()
    mini = Miniature(open_store((folder / "flights").as_uri()), folder / "local", DictStore, backend="rocksdb")
    mini.start(2)
    for batch, changes in enumerate(flushes):
        mini.begin(batch)
        mini.run(batch, changes)
        mini.checkpoint(batch)
    left = folder / "left"
    (folder / "local").rename(left)
    (folder / "local").mkdir()
    mini.leftovers = (left,)
    return mini


def _sums(folder: Path) -> dict[tuple[str, str], int]:
    """Sizes of the regular files by name and sum, computed apart from the product."""
    return {
        (path.name, xxhash.xxh128_hexdigest(path.read_bytes())): path.stat().st_size
        for path in folder.rglob("*.sst")
        if path.is_file() and not path.is_symlink()
    }


_CHANGES = st.lists(
    st.tuples(st.integers(0, 7).map(lambda group: bytes([0, group, 0, 1])), st.binary(min_size=1, max_size=40)), min_size=1, max_size=6
)


@settings(max_examples=examples(20, 150))
@given(flushes=st.lists(_CHANGES, min_size=1, max_size=4), parallelism=st.integers(1, 4), data=st.data())
def test_what_is_undamaged_is_linked_and_the_rest_downloaded(
    tmp_path_factory: pytest.TempPathFactory, flushes: list[list[Change]], parallelism: int, data: st.DataObject
) -> None:
    """Whatever happened to the files, the state is right, and as many bytes are linked as sound files of the checkpoint are left, however often each is needed."""
    mini = _job(tmp_path_factory.mktemp("job"), flushes)
    wanted = mini.contents()
    (left,) = mini.leftovers
    if data.draw(st.booleans(), label="noted"):
        # What happens to the files from here on shows in their marks.
        for folder in sorted({path.parent for path in left.rglob("*.sst")}):
            note_digests(left, folder, {path.name: digest_bytes(path.read_bytes()) for path in folder.glob("*.sst")})
        time.sleep(0.01)
    for path in sorted(left.rglob("*.sst")):
        data.draw(st.sampled_from((*_DAMAGES, _same, lambda _: None)), label=path.name)(path)
    sound = _sums(left)
    before = {path: path.lstat() for path in left.rglob("*.sst")}
    base = mini.lineage_now().base
    assert base is not None
    mini.start(parallelism)
    for slot in mini.slots:
        files = [
            file
            for old in base.metadata.slots
            if old.key_groups.intersect(slot.key_groups)
            for file in old.files
            if file.name.endswith(".sst")
        ]
        here = sum(file.size_bytes for file in files if sound.get((file.name, file.checksum.removeprefix("xxh128:"))) == file.size_bytes)
        assert slot.restored.local_bytes == here
    assert mini.contents() == wanted
    assert all(path.lstat().st_mtime_ns == status.st_mtime_ns for path, status in before.items()), "what was left was written to"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EIO])
def test_a_file_that_cannot_be_linked_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A full disk, another file system, too many links, one without links, a failing disk."""
    mini = _job(tmp_path, [[(bytes([0, group, 0, 1]), b"x" * 50) for group in range(8)]])
    wanted = mini.contents()

    link = os.link

    def fail(source: Path, target: Path, **options: Any) -> None:
        if left in Path(source).parents:
            raise OSError(code, os.strerror(code))
        link(source, target, **options)

    (left,) = mini.leftovers
    monkeypatch.setattr(os, "link", fail)
    mini.start(2)
    assert [slot.restored.local_bytes for slot in mini.slots] == [0, 0]
    assert all(slot.restored.downloaded_bytes > 0 for slot in mini.slots)
    assert mini.contents() == wanted


def test_a_file_that_cannot_be_read_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad sector under a file that has the right name and size; no half-linked file stays in the way of the download."""
    mini = _job(tmp_path, [[(bytes([0, group, 0, 1]), b"x" * 50) for group in range(8)]])
    wanted = mini.contents()

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(local_files, "digest_file", fail)
    mini.start(2)
    assert [slot.restored.local_bytes for slot in mini.slots] == [0, 0]
    assert mini.contents() == wanted


def test_files_that_a_store_changes_are_never_linked() -> None:
    """RocksDB appends to its manifest: linked, it would change the file of another store."""
    assert [is_final(name, "rocksdb") for name in ("000007.sst", "MANIFEST-000001", "CURRENT", "OPTIONS-000005", "000009.log")] == [
        True, False, False, False, False,
    ]  # fmt: skip
    assert is_final("entries", "filesystem")
    assert not is_final("000007.sst", "mine:Backend"), "a backend of one's own may do anything with its files"


def test_a_linked_file_outlives_the_folder_it_came_from(tmp_path: Path) -> None:
    left, target = tmp_path / "left", tmp_path / "target"
    left.mkdir()
    (left / "1.sst").write_bytes(b"entries")
    found = LocalFiles([left, tmp_path / "gone"])
    assert found.link("1.sst", digest_bytes(b"entries"), target)
    assert not found.link("2.sst", digest_bytes(b"entries"), tmp_path / "other"), "the name counts too"
    (left / "1.sst").unlink()
    assert target.read_bytes() == b"entries"
