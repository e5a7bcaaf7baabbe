"""HeapStore: what a snapshot and a scan cost, counted, and what they leave behind."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from statefulspark.errors import UnavailableError
from statefulspark.state.store import heap_store
from statefulspark.state.store.heap_store import HeapStore

GROUPS = 128
PER_GROUP = 50


class CountedKey(bytes):
    """A store key that counts its comparisons, by key group."""

    compared: ClassVar[Counter[bytes]] = Counter()

    def __lt__(self, other: bytes) -> bool:
        self.compared[self[:2]] += 1
        return super().__lt__(other)

    __hash__ = bytes.__hash__


def key(group: int, number: int) -> bytes:
    return group.to_bytes(2, "big") + b"\0\1" + number.to_bytes(4, "big")


@pytest.fixture
def store() -> HeapStore:
    """All key groups with a few entries each, in no order."""
    keys = [key(group, number) for group in range(GROUPS) for number in range(PER_GROUP)]
    Random(1).shuffle(keys)
    store = HeapStore()
    store.write([(each, b"before") for each in keys])
    return store


def dicts(store: HeapStore) -> dict[bytes, int]:
    """The identity of each key group's dict."""
    return {prefix: id(group.entries) for prefix, group in store._groups.items()}


def copied(before: dict[bytes, int], after: dict[bytes, int]) -> set[int]:
    return {int.from_bytes(prefix, "big") for prefix in before if before[prefix] != after[prefix]}


def test_a_write_after_a_freeze_copies_the_dict_of_its_key_group(store: HeapStore, tmp_path: Path) -> None:
    """Once, and the entries in it are the same objects; when the snapshot is written, nothing is copied any more."""
    before, entries = dicts(store), store._groups[key(5, 0)[:2]].entries
    snapshot = store.begin_snapshot(tmp_path / "snapshot")
    store.write([(key(5, 0), b"after"), (key(5, 1), None), (key(5, 99), b"new")])
    assert copied(before, dicts(store)) == {5}
    assert all(store.get(each) is value for each, value in entries.items() if each[4:] not in (b"\0\0\0\0", b"\0\0\0\1"))
    again = dicts(store)
    store.write([(key(5, 2), b"after")])
    store.get_many([key(6, number) for number in range(PER_GROUP)])
    list(store.scan(b"", b"\xff"))
    assert copied(again, dicts(store)) == set()
    snapshot.write()
    store.write([(key(group, 3), b"after") for group in range(GROUPS)])
    assert copied(again, dicts(store)) == set()
    copy = HeapStore(tmp_path / "snapshot")
    assert {value for _, value in copy.scan(b"", b"\xff")} == {b"before"}
    assert copy.entry_count() == GROUPS * PER_GROUP


def test_a_snapshot_that_is_given_up_or_fails_keeps_nothing(store: HeapStore, tmp_path: Path) -> None:
    """Its dicts are freed, and the next snapshot is whole."""
    given_up = store.begin_snapshot(tmp_path / "one")
    del given_up
    gc.collect()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnavailableError, match="cannot be written"):
        store.begin_snapshot(tmp_path / "file" / "two").write()
    assert list(store._snapshots) == []
    assert not any(group.frozen for group in store._groups.values())
    store.begin_snapshot(tmp_path / "three").write()
    assert HeapStore(tmp_path / "three").entry_count() == GROUPS * PER_GROUP


@pytest.mark.parametrize("fails", [False, True])
def test_a_snapshot_that_is_written_keeps_no_dict(store: HeapStore, tmp_path: Path, fails: bool) -> None:
    """Though somebody holds it until it is uploaded: the dicts that the store has replaced are freed. An overlapping one keeps its own."""
    (tmp_path / "file").write_bytes(b"")
    old = [group.entries for group in store._groups.values()]
    snapshot = store.begin_snapshot(tmp_path / "file" / "one" if fails else tmp_path / "one")
    store.write([(key(group, 0), b"after") for group in range(GROUPS)])
    later = store.begin_snapshot(tmp_path / "two")
    alone = [[object()]]
    assert {sys.getrefcount(each) for each in old} == {sys.getrefcount(alone[0]) + 2}, "this loop, and the snapshot"
    if fails:
        with pytest.raises(UnavailableError):
            snapshot.write()
    else:
        snapshot.write()
    assert {sys.getrefcount(each) for each in old} == {sys.getrefcount(alone[0]) + 1}, "this loop"
    store.write([(key(group, 0), b"later") for group in range(GROUPS)])
    later.write()
    copy = HeapStore(tmp_path / "two")
    assert {copy.get(key(group, 0)) for group in range(GROUPS)} == {b"after"}
    del snapshot


def test_a_freeze_counts_and_waiting_for_the_store_does_not(store: HeapStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of its own: 30 s for the lock, during which batches run, and 2 s to mark the key groups, during which none does."""
    now_s = 0.0
    lock: Any = store._lock

    def passes(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    class BusyLock:
        def __enter__(self) -> None:
            passes(30)
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    class ManyGroups(dict[Any, Any]):
        def values(self) -> Any:
            passes(2)
            return super().values()

    monkeypatch.setattr(heap_store, "time", SimpleNamespace(monotonic=lambda: now_s))
    store._groups = ManyGroups(store._groups)
    store._lock = BusyLock()  # type: ignore[assignment]
    assert store.begin_snapshot(tmp_path / "snapshot").held_up_ms == 2000


def test_a_deleted_range_stays_in_the_snapshot(store: HeapStore, tmp_path: Path) -> None:
    """Whole key groups are dropped at once, as a rescaled slot cuts them off; parts of one are deleted key by key."""
    snapshot = store.begin_snapshot(tmp_path / "snapshot")
    store.delete_range(key(3, 20), key(100, 10))
    left = {each[:2] for each, _ in store.scan(b"", b"\xff")}
    assert left == {group.to_bytes(2, "big") for group in [*range(4), *range(100, GROUPS)]}
    assert store.entry_count() == PER_GROUP * (3 + 27) + 20 + PER_GROUP - 10
    snapshot.write()
    assert HeapStore(tmp_path / "snapshot").entry_count() == GROUPS * PER_GROUP


def test_a_scan_of_one_key_group_sorts_no_other() -> None:
    """And few new keys are not sorted with all others again."""
    store = HeapStore()
    numbers = list(range(20_000))
    Random(1).shuffle(numbers)
    store.write([(CountedKey(key(group, number)), b"1") for group in range(4) for number in numbers[:2000]])
    CountedKey.compared.clear()
    assert len(list(store.scan(key(2, 0), key(2, 1 << 30)))) == 2000
    assert set(CountedKey.compared) == {b"\0\2"}
    CountedKey.compared.clear()
    store.write([(CountedKey(key(2, number)), b"1") for number in numbers[2000:2010]])
    assert len(list(store.scan(key(2, 0), key(2, 100)))) < 100
    assert CountedKey.compared[b"\0\2"] < 10 * 11 + 200, "ten binary searches, and the scan"
    CountedKey.compared.clear()
    store.write([(CountedKey(key(2, number)), b"1") for number in numbers[2010:4010]])
    assert len(list(store.scan(key(2, 0), key(2, 1 << 30)))) == 4010
    assert CountedKey.compared[b"\0\2"] < 2000 * 11 + 3 * 4010, "a sort of the new keys, and a merge"


def test_keys_that_come_and_go_leave_no_list_behind() -> None:
    """With and without scans: what the index keeps is bounded by the entries."""
    store = HeapStore()
    for scanned in (False, True):
        for number in range(1, 5000):
            store.write([(key(1, number), b"1"), (key(1, number - 1), None)])
            if scanned and number % 7 == 0:
                assert [each for each, _ in store.scan(key(1, 0), key(1, 1 << 30))] == [key(1, number)]
        assert sum(map(len, store._groups[b"\0\1"]._orders.values())) < 300
        assert store.entry_count() == 1
        store.write([(key(1, 4999), None)])


def test_a_scan_that_meets_writes_goes_on(store: HeapStore) -> None:
    """Each key once and in order, those that stay all the time among them."""
    seen = []
    for number, (each, _) in enumerate(store.scan(b"", b"\xff")):
        seen.append(each)
        if number % 40 == 0:
            ahead = int.from_bytes(each[:2], "big") + 1
            store.write([(key(ahead, number), b"new"), (key(ahead, 7), None)])
    assert seen == sorted(set(seen))
    assert {key(group, number) for group in range(GROUPS) for number in range(PER_GROUP) if number != 7} <= set(seen)
