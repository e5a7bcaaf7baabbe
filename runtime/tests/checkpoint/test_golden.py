"""Savepoints that an earlier release wrote open, restore to other numbers of slots and read the same. Never regenerate them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from runtime.tests.checkpoint.miniature import Miniature

from statefulspark.checkpoint.formats.metadata import decode_metadata
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.open_store import open_store as open_kind
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.storage.open import open_store

GOLDEN = Path(__file__).parent / "golden"
KINDS: dict[str, Callable[[Path], KeyValueStore]] = {"memory": HeapStore, "rocksdb": RocksDBStore}

EXPECTED = {
    "legs": [("N101", None, 1, None), ("P202", None, 2, None)],
    "delays": [("N101", None, [0.5, 0.0], None), ("P202", None, [0.5, 1.0], None)],
    "airports": [("N101", "JFK", 0, None), ("N101", "LGA", None, None), ("P202", "JFK", 1, None), ("P202", "LGA", None, None)],
    "event-timers": [("N101", None, None, 1_357_000_000_000), ("P202", None, None, 1_357_000_000_001)],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [1, 14])
def test_a_savepoint_reads_and_restores(tmp_path: Path, version: int, kind: str) -> None:
    """Verified, decoded, taken over by three slots, and written again by today's code. Since version 14, files have XXH128."""
    url = _golden(f"savepoint-{kind}-v{version}", tmp_path)
    assert verify(url).problems == ()
    _assert_reads(url)
    mini = _started(url, tmp_path, KINDS[kind], kind)
    mini.checkpoint(0)
    _assert_closed_reads(mini)


def test_a_job_keeps_the_checksums_of_an_earlier_release(tmp_path: Path) -> None:
    """Files that stay are not hashed again, new ones have the new algorithm: one checkpoint has both, and is verified and restored."""
    url = _golden("savepoint-rocksdb-v1", tmp_path)
    old = decode_metadata((tmp_path / "savepoint" / "_metadata").read_bytes(), path="old")
    mini = _started(url, tmp_path, RocksDBStore, "rocksdb", parallelism=old.parallelism)
    written = mini.checkpoint(0)
    checksums = {file.checksum.partition(":")[0] for slot in written.slots for file in slot.files}
    assert checksums == {"sha256", "xxh128"}
    assert verify(mini.job.url).problems == ()
    _assert_closed_reads(mini)


@pytest.mark.parametrize("heap_timers", [True, False])
def test_a_savepoint_with_heap_timers_reads_and_restores(tmp_path: Path, heap_timers: bool) -> None:
    """Its timers are in files of their own. They are read with the others, and fire with either timer service."""
    url = _golden("savepoint-rocksdb-heap-timers", tmp_path)
    assert (tmp_path / "savepoint" / "_metadata").read_bytes().startswith(b'{"format_version":8,')
    assert verify(url).problems == ()
    _assert_reads(url)
    mini = _started(url, tmp_path, lambda path: open_kind("rocksdb", path, heap_timers=heap_timers), "rocksdb")
    written = mini.checkpoint(0)
    assert any(slot.heap_timers for slot in written.slots) == heap_timers
    _assert_closed_reads(mini)


@pytest.mark.parametrize("kind", KINDS)
def test_a_canonical_savepoint_restores_on_every_backend(tmp_path: Path, kind: str) -> None:
    """The job's own checkpoint after it has the files of its backend, and needs nothing of the savepoint any more."""
    url = _golden("savepoint-canonical-v9", tmp_path)
    _assert_reads(url)
    mini = _started(url, tmp_path, KINDS[kind], kind)
    shutil.rmtree(tmp_path / "savepoint")
    _assert_reads(mini.job.url)
    assert verify(mini.job.url).problems == (), "the copy that the job made of it"
    written = mini.checkpoint(0)
    assert {slot.backend for slot in written.slots} == {kind}
    _assert_closed_reads(mini)


def _assert_reads(url: str) -> None:
    for state, expected in EXPECTED.items():
        assert [(entry.key, entry.user_key, entry.value, entry.timestamp_ms) for entry in read_state(url, "step", state)] == expected


def _golden(name: str, folder: Path) -> str:
    """Copy a golden savepoint; return the copy's URL."""
    shutil.copytree(GOLDEN / name, folder / "savepoint")
    return (folder / "savepoint").as_uri()


def _started(url: str, folder: Path, make_store: Callable[[Path], KeyValueStore], backend: str, *, parallelism: int = 3) -> Miniature:
    """Return a job whose slots have taken a savepoint over."""
    (folder / "local").mkdir()
    mini = Miniature(open_store((folder / "flights").as_uri()), folder / "local", make_store, max_parallelism=128, backend=backend)
    assert mini.start(parallelism, origin=url) == 0
    mini.states = mini.slots[0].restored.states
    return mini


def _assert_closed_reads(mini: Miniature) -> None:
    """Close the stores; what the job has written reads the same."""
    for slot in mini.slots:
        slot.store.close()
    _assert_reads(mini.job.url)
