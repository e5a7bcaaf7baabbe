"""Restores from S3: a GET per object, counted by a server, and none that is not what the checkpoint says."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature
from runtime.tests.counted_s3 import Requests, counted_s3
from runtime.tests.s3_server import ACCESS_KEY, BUCKET

from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.transfers import download_verified
from statefulspark.errors import CorruptDataError
from statefulspark.state.store.base import Change
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store
from statefulspark.storage.s3.objects import S3Checksum, S3ObjectSettings
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[StorageSettings, Requests]]:
    with counted_s3() as (s3, requests):
        settings = StorageSettings(endpoint=s3.endpoint, region="us-east-1", access_key_id=ACCESS_KEY, secret_access_key=ACCESS_KEY)
        yield settings, requests


@pytest.mark.parametrize("checksum", list(S3Checksum))
def test_a_file_that_is_not_as_it_is_known(server: tuple[StorageSettings, Requests], tmp_path: Path, checksum: S3Checksum) -> None:
    """Absent, empty, shorter, longer or other bytes: the checksum of the caller tells, and nothing stays on the local disk."""
    settings, _ = server
    settings = StorageSettings(
        endpoint=settings.endpoint,
        region="us-east-1",
        access_key_id=ACCESS_KEY,
        secret_access_key=ACCESS_KEY,
        s3=S3ObjectSettings(checksum=checksum),
    )
    store = S3Store(BUCKET, uuid.uuid4().hex, settings)
    path = tmp_path / "file"
    with pytest.raises(KeyError):
        store.get_file("file", path)
    for stored in (b"", b"content", b"conten", b"contents", b"c0ntent", b"x" * 100_000):
        store.put("file", stored)
        fetch = partial(download_verified, store, "file", path, digest_bytes(b"content"))
        if stored == b"content":
            fetch()
            assert path.read_bytes() == stored
            path.unlink()
            continue
        with pytest.raises(CorruptDataError, match="file"):
            fetch()
        assert not list(tmp_path.iterdir())


def test_a_restore_looks_up_nothing(server: tuple[StorageSettings, Requests], tmp_path: Path) -> None:
    """Files of the checkpoint and changelogs after it: a GET each."""
    settings, requests = server
    root = f"s3://{BUCKET}/{uuid.uuid4().hex}/flights"

    def opened(url: str) -> ObjectStore:
        return open_store(url, settings)

    mini = Miniature(opened(root), tmp_path, DictStore, open_store=opened)
    mini.start(2)
    changes: list[Change] = [(bytes([0, group, 0, 1]), b"%d" % group) for group in range(8)]
    for batch in range(3):
        mini.begin(batch)
        mini.run(batch, changes)
        if batch == 1:
            mini.checkpoint(batch)
    mini.begin(3)
    assert mini.lineage is not None
    lineage = mini.lineage_now()
    assert lineage.base is not None
    files = [file for slot in lineage.base.metadata.slots for file in slot.files if file.size_bytes]
    requests.take()
    for slot in range(2):
        assert dict(mini._restore(slot, 2, lineage).store.scan(b"", b"\xff" * 8))
    counted = requests.take()
    assert len(files) > 2
    assert counted == Counter(GET=len(files) + len(lineage.changelogs))
