"""How far an upload is: only what is new in a checkpoint, all of a savepoint, counted when storage has a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.write.progress import UploadedBytes
from statefulspark.checkpoint.write.upload import SlotUploader
from statefulspark.errors import UnavailableError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.open import open_store

SIZES = {"000001.sst": 100, "000002.sst": 50, "CURRENT": 10}


class Observed:
    """Uploads one file at a time and notes what is reported before each, as a heartbeat would."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = open_store(folder.as_uri())
        self.job = open_store((folder / "job").as_uri())
        self.target = open_store((folder / "savepoints").as_uri())
        self.snapshot = folder / "snapshot"
        self.snapshot.mkdir()
        self.uploader = SlotUploader(self.job, slot=0, key_groups=KeyGroupRange(0, 7), backend="rocksdb", threads=1)
        self.seen: list[UploadedBytes | None] = []
        self.broken = False
        inner = type(self.job).put_file

        def put_file(store: ObjectStore, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
            self.seen.append(self.uploader.progress.read())
            if self.broken:
                raise UnavailableError("storage did not answer")
            inner(store, key, path, cancellation)

        monkeypatch.setattr(type(self.job), "put_file", put_file)

    def write(self, **more: int) -> None:
        for name, size in (SIZES | more).items():
            (self.snapshot / name).write_bytes(b"x" * size)

    def upload(self, checkpoint_id: int, base: int | None) -> list[tuple[int, int]]:
        self.seen.clear()
        with self.uploader.progress.of(checkpoint_id):
            self.uploader.upload(self.snapshot, checkpoint_id, nonce=paths.new_nonce(), base_checkpoint_id=base, step_batches={})
            last = self.uploader.progress.read()
        assert {each.checkpoint_id for each in (*self.seen, last) if each is not None} == {checkpoint_id}
        return [(each.uploaded_bytes, each.total_bytes) for each in (*self.seen, last) if each is not None]


@pytest.fixture
def observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observed:
    return Observed(tmp_path, monkeypatch)


def test_a_checkpoint_counts_what_no_earlier_one_has(observed: Observed) -> None:
    observed.write()
    assert observed.upload(1, None) == [(0, 160), (100, 160), (150, 160), (160, 160)]
    observed.write(**{"000003.sst": 70})
    assert observed.upload(2, 1) == [(0, 80), (70, 80), (80, 80)]
    assert observed.uploader.progress.read() is None, "nothing is being uploaded"


def test_a_savepoint_counts_the_files_that_storage_copies_too(observed: Observed) -> None:
    observed.write()
    observed.upload(1, None)
    observed.seen.clear()
    with observed.uploader.progress.of(2):
        observed.uploader.upload_savepoint(
            observed.snapshot, observed.target, "savepoint-2", base_checkpoint_id=1, step_batches={}, common=observed.root
        )
        assert observed.uploader.progress.read() == UploadedBytes(checkpoint_id=2, uploaded_bytes=160, total_bytes=160)
    assert observed.seen == [UploadedBytes(checkpoint_id=2, uploaded_bytes=150, total_bytes=160)], "one file was sent, two were copied"


def test_a_failed_upload_is_over(observed: Observed) -> None:
    observed.write()
    observed.broken = True
    with pytest.raises(UnavailableError):
        observed.upload(1, None)
    assert observed.uploader.progress.read() is None
