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
def test_a_savepoint_of_version_1_reads_and_restores(tmp_path: Path, kind: str) -> None:
    """Verified, decoded, taken over by three slots, and written again by today's code."""
    shutil.copytree(GOLDEN / f"savepoint-{kind}-v1", tmp_path / "savepoint")
    url = (tmp_path / "savepoint").as_uri()
    assert verify(url).problems == ()
    _assert_reads(url)
    _assert_restores(url, tmp_path, kind)


def test_a_job_keeps_the_checksums_of_an_earlier_release(tmp_path: Path) -> None:
    """Files that stay are not hashed again, new ones have the new algorithm: one checkpoint has both, and is verified and restored."""
    shutil.copytree(GOLDEN / "savepoint-rocksdb-v1", tmp_path / "savepoint")
    (tmp_path / "local").mkdir()
    job = open_store((tmp_path / "flights").as_uri())
    mini = Miniature(job, tmp_path / "local", RocksDBStore, max_parallelism=128, backend="rocksdb")
    old = decode_metadata((tmp_path / "savepoint" / "_metadata").read_bytes(), path="old")
    assert mini.start(old.parallelism, origin=(tmp_path / "savepoint").as_uri()) == 0
    mini.states = mini.slots[0].restored.states
    written = mini.checkpoint(0)
    checksums = {file.checksum.partition(":")[0] for slot in written.slots for file in slot.files}
    assert checksums == {"sha256", "xxh128"}
    for slot in mini.slots:
        slot.store.close()
    assert verify(job.url).problems == ()
    _assert_reads(job.url)


@pytest.mark.parametrize("kind", KINDS)
def test_a_savepoint_with_xxh128_reads_and_restores(tmp_path: Path, kind: str) -> None:
    """Its files have other checksums than those of before; a job that starts from it has both kinds, if it keeps files of an earlier one."""
    shutil.copytree(GOLDEN / f"savepoint-{kind}-v14", tmp_path / "savepoint")
    url = (tmp_path / "savepoint").as_uri()
    assert verify(url).problems == ()
    _assert_reads(url)
    _assert_restores(url, tmp_path, kind)


@pytest.mark.parametrize("heap_timers", [True, False])
def test_a_savepoint_with_heap_timers_reads_and_restores(tmp_path: Path, heap_timers: bool) -> None:
    """Its timers are in files of their own. They are read with the others, and fire with either timer service."""
    shutil.copytree(GOLDEN / "savepoint-rocksdb-heap-timers", tmp_path / "savepoint")
    url = (tmp_path / "savepoint").as_uri()
    assert (tmp_path / "savepoint" / "_metadata").read_bytes().startswith(b'{"format_version":8,')
    assert verify(url).problems == ()
    _assert_reads(url)
    (tmp_path / "local").mkdir()
    job = open_store((tmp_path / "flights").as_uri())
    mini = Miniature(
        job, tmp_path / "local", lambda path: open_kind("rocksdb", path, heap_timers=heap_timers), max_parallelism=128, backend="rocksdb"
    )
    assert mini.start(3, origin=url) == 0
    mini.states = mini.slots[0].restored.states
    written = mini.checkpoint(0)
    assert any(slot.heap_timers for slot in written.slots) == heap_timers
    for slot in mini.slots:
        slot.store.close()
    _assert_reads(job.url)


@pytest.mark.parametrize("kind", KINDS)
def test_a_canonical_savepoint_restores_on_every_backend(tmp_path: Path, kind: str) -> None:
    """The job's own checkpoint after it has the files of its backend, and needs nothing of the savepoint any more."""
    shutil.copytree(GOLDEN / "savepoint-canonical-v9", tmp_path / "savepoint")
    url = (tmp_path / "savepoint").as_uri()
    _assert_reads(url)
    (tmp_path / "local").mkdir()
    job = open_store((tmp_path / "flights").as_uri())
    mini = Miniature(job, tmp_path / "local", KINDS[kind], max_parallelism=128, backend=kind)
    assert mini.start(3, origin=url) == 0
    shutil.rmtree(tmp_path / "savepoint")
    _assert_reads(job.url)
    assert verify(job.url).problems == (), "the copy that the job made of it"
    mini.states = mini.slots[0].restored.states
    written = mini.checkpoint(0)
    assert {slot.backend for slot in written.slots} == {kind}
    for slot in mini.slots:
        slot.store.close()
    _assert_reads(job.url)


def _assert_reads(url: str) -> None:
    for state, expected in EXPECTED.items():
        assert [(entry.key, entry.user_key, entry.value, entry.timestamp_ms) for entry in read_state(url, "step", state)] == expected


def _assert_restores(url: str, folder: Path, kind: str) -> None:
    """Three slots take the savepoint over, and today's code writes it again."""
    (folder / "local").mkdir()
    job = open_store((folder / "flights").as_uri())
    mini = Miniature(job, folder / "local", KINDS[kind], max_parallelism=128, backend=kind)
    assert mini.start(3, origin=url) == 0
    mini.states = mini.slots[0].restored.states
    mini.checkpoint(0)
    for slot in mini.slots:
        slot.store.close()
    _assert_reads(job.url)
