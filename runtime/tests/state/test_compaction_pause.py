"""A store that is opened with files merges none for a while."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from statefulspark.state.store import compaction_pause
from statefulspark.state.store.rocksdb_store import RocksDBStore

FILES = 8
"""Twice as many as RocksDB merges at once."""


def flush_file(store: RocksDBStore, number: int) -> None:
    """Write a table file whose keys lie among those of all others."""
    store.write([(b"\0\1\0\1" + key.to_bytes(4, "big"), number.to_bytes(4, "big") + os.urandom(100)) for key in range(1000)])
    store.flush()


def first_level(store: RocksDBStore) -> int:
    return store.property_int_value("rocksdb.num-files-at-level0") or 0


def merges_within(store: RocksDBStore, limit_s: float) -> bool:
    """Whether RocksDB merges the files of the first level, while the slot's heartbeat asks for the size of the store."""
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        store.size_bytes()
        if first_level(store) < 4:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def reopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RocksDBStore:
    """A store that was closed with one file, and opened again with a pause of an hour."""
    monkeypatch.setattr(compaction_pause, "PAUSE_S", 3600.0)
    store = RocksDBStore(tmp_path / "db")
    flush_file(store, 0)
    store.close()
    return RocksDBStore(tmp_path / "db")


def test_a_new_store_merges_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing to catch up with."""
    monkeypatch.setattr(compaction_pause, "PAUSE_S", 3600.0)
    store = RocksDBStore(tmp_path / "db")
    for number in range(FILES):
        flush_file(store, number)
    assert merges_within(store, 30)
    store.close()


def test_a_restored_store_merges_nothing_during_the_pause(reopened: RocksDBStore) -> None:
    """However many files it would have merged otherwise, and its entries are right."""
    for number in range(1, FILES):
        flush_file(reopened, number)
    assert not merges_within(reopened, 1)
    assert first_level(reopened) == FILES
    assert {value[:4] for _, value in reopened.scan(b"", b"\xff")} == {(FILES - 1).to_bytes(4, "big")}
    reopened.close()


def test_it_merges_when_the_pause_is_over(reopened: RocksDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being written to: the heartbeat is enough. The next opening pauses again."""
    for number in range(1, FILES):
        flush_file(reopened, number)
    later = time.monotonic() + 3601
    monkeypatch.setattr("statefulspark.state.store.compaction_pause.time.monotonic", lambda: later)
    reopened.size_bytes()
    monkeypatch.undo()
    assert merges_within(reopened, 30)
    reopened.close()


def test_many_new_files_end_the_pause(reopened: RocksDBStore) -> None:
    """A job that writes much after a restore must not search dozens of files for each look-up."""
    for number in range(1, 20):
        flush_file(reopened, number)
    assert merges_within(reopened, 30)
    reopened.close()
