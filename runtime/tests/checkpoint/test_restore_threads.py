"""A slot downloads as many files at once as it is told: no more, and no less while there are so many."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from runtime.tests.checkpoint.bucket import Bucket, BucketStore
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature

from statefulspark.checkpoint.restore.slot import RestorePlan, restore_slot
from statefulspark.state.store.base import Change
from statefulspark.storage.hashes import HashAlgorithm


@dataclass(frozen=True)
class Together(BucketStore):
    """Lets a download end when so many are under way, or when nobody else comes for a while."""

    expected: int = 1
    running: list[int] = field(default_factory=list)
    most: list[int] = field(default_factory=lambda: [0])
    changed: threading.Condition = field(default_factory=threading.Condition)

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> None:
        with self.changed:
            self.running.append(1)
            self.most[0] = max(self.most[0], len(self.running))
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most[0] >= self.expected, timeout=5)
        super().get_file(key, path, algorithm)
        with self.changed:
            self.running.pop()


@pytest.mark.parametrize("threads", [1, 3])
def test_files_are_downloaded_at_once(tmp_path: Path, threads: int) -> None:
    bucket = Bucket()
    (tmp_path / "local").mkdir()
    mini = Miniature(bucket.open("mem://bucket/flights"), tmp_path / "local", DictStore, open_store=bucket.open)
    mini.start(1)
    changes: list[Change] = []
    for batch in range(4):
        changes = [(bytes([0, group, 0, 1]), b"%d" % batch) for group in range(8)]
        mini.begin(batch)
        mini.run(batch, changes)
        mini.checkpoint(batch)
    lineage = mini.lineage_now()
    assert lineage.base is not None
    assert len(lineage.base.metadata.slots[0].files) > threads
    store = Together(bucket, "flights/", threads)
    plan = RestorePlan(
        store=store,
        base=type(lineage.base)(store, lineage.base.folder, lineage.base.metadata),
        changelogs=(),
        batch=3,
        key_groups=mini.slots[0].key_groups,
        max_parallelism=8,
        backend="dict",
    )
    restored = restore_slot(plan, tmp_path / "restored", DictStore, threads=threads)
    assert dict(restored.store.scan(b"", b"\xff" * 8)) == dict(changes)
    assert store.most == [threads]
