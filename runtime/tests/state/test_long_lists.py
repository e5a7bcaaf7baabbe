"""Lists that are longer than one stored value: what an append writes, what replaces them, and what becomes of lists of earlier releases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statefulspark.errors import CorruptDataError
from statefulspark.state.api.descriptors import ListStateDescriptor
from statefulspark.state.api.states import ListState
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.segments import NEVER_MS, Head, whole_lists
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.memory_store import MemoryStore
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.tables.lists import SHORT_LIST_BYTES
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import KeyedSlot

ROOM = BatchBudget(64 << 20, 64 << 20)
NONE = BatchBudget(0, 64 << 20)
TTL_MS = 1000


@pytest.fixture(params=[MemoryStore, RocksDBStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyValueStore]:
    opened = request.param(tmp_path / "store")
    yield opened
    opened.close()


def slot_on(store: KeyValueStore, tmp_path: Path, budget: BatchBudget = ROOM) -> KeyedSlot:
    return KeyedSlot(store, tmp_path, budget)


def elements(slot: KeyedSlot, *, ttl: bool = False) -> ListState[Any]:
    descriptor = ListStateDescriptor("list", Types.LONG())
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(TTL_MS)).build())
    return slot.backend.list_state(descriptor)


def written(changes: Iterable[Change]) -> int:
    return sum(len(key) + len(data or b"") for key, data in changes)


def fill(slot: KeyedSlot, count: int, *, ttl: bool = False, key: str = "a") -> None:
    with slot.batch(key):
        elements(slot, ttl=ttl).update(range(count))
    slot.backend.apply_pending()


@pytest.mark.parametrize("budget", [ROOM, NONE], ids=["cached", "uncached"])
@pytest.mark.parametrize("ttl", [False, True])
def test_an_append_writes_the_element_whatever_the_length(store: KeyValueStore, tmp_path: Path, budget: BatchBudget, ttl: bool) -> None:
    """Key, element and a head: below 150 bytes in the changelog for a list of 1,000 and for one of 100,000."""
    for count in (1_000, 100_000):
        slot = slot_on(store, tmp_path, budget)
        fill(slot, count, ttl=ttl)
        with slot.batch("a"):
            elements(slot, ttl=ttl).add(7)
        assert written(slot.changes) < 150
        with slot.batch("a"):
            assert list(elements(slot, ttl=ttl).get()) == [*range(count), 7]


def test_an_append_does_not_read_the_list(tmp_path: Path) -> None:
    """Not with a cold cache either: the store is asked for the head, and nothing is scanned."""

    class Watched(MemoryStore):
        scans = 0

        def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
            self.scans += 1
            return super().scan(first, end)

    store = Watched()
    fill(slot_on(store, tmp_path), 5000)
    again = slot_on(store, tmp_path, NONE)
    read = store.scans
    for number in range(3):
        with again.batch("a"):
            elements(again).add(number)
    assert store.scans == read
    with again.batch("a"):
        assert list(elements(again).get())[-4:] == [4999, 0, 1, 2]


def test_a_short_list_is_one_value_as_before(store: KeyValueStore, tmp_path: Path) -> None:
    """To the byte what earlier releases wrote."""
    slot = slot_on(store, tmp_path)
    fill(slot, 3)
    (key, data), *others = slot.entries().items()
    assert others == []
    assert key.endswith(b"\0\0\0\1a")
    assert data.hex() == "01" + "00000003" + "".join(f"00000008{number:016x}" for number in range(3))


def test_the_layout_of_a_long_list(store: KeyValueStore, tmp_path: Path) -> None:
    """To the byte: a head, and a segment per batch that has appended. docs/formats.md describes it."""
    slot = slot_on(store, tmp_path)
    count = SHORT_LIST_BYTES // 12 + 1
    fill(slot, count)
    with slot.batch("a"):
        elements(slot).add_all([1, 2])
    slot.backend.apply_pending()
    (head_key, head), (first_key, first), (second_key, second) = slot.entries().items()
    assert head.hex() == "06" + f"{0:016x}" + f"{2:016x}" + "7fffffffffffffff"
    assert first_key == head_key + bytes(8)
    assert second_key == head_key + bytes(7) + b"\1"
    assert first.hex() == "01" + f"{count:08x}" + "".join(f"00000008{number:016x}" for number in range(count))
    assert second.hex() == "01" + "00000002" + f"00000008{1:016x}" + f"00000008{2:016x}"


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_what_replaces_a_long_list_leaves_nothing_of_it(store: KeyValueStore, tmp_path: Path, count: int) -> None:
    slot = slot_on(store, tmp_path)
    fill(slot, 5000)
    for number in range(3):
        with slot.batch("a"):
            elements(slot).add(number)
    fill(slot, 10, key="b")
    with slot.batch("a"):
        elements(slot).update(range(count))
    slot.backend.apply_pending()
    assert len(slot.entries()) == {0: 0, 1: 1, 5000: 2}[count] + 1, "the other key's list stays"
    with slot.batch("a"):
        assert list(elements(slot).get()) == list(range(count))
    with slot.batch("b"):
        assert list(elements(slot).get()) == list(range(10))


def test_a_list_that_was_cleared_starts_again(store: KeyValueStore, tmp_path: Path) -> None:
    """Within the batch that cleared it, and in later ones, up to a long list."""
    slot = slot_on(store, tmp_path)
    fill(slot, 5000)
    with slot.batch("a"):
        elements(slot).clear()
        elements(slot).add(1)
        assert list(elements(slot).get()) == [1]
    with slot.batch("a"):
        elements(slot).add_all(range(5000))
    with slot.batch("a"):
        elements(slot).add(3)
        assert list(elements(slot).get()) == [1, *range(5000), 3]


def test_a_batch_that_is_rolled_back_leaves_a_long_list_as_it_was(store: KeyValueStore, tmp_path: Path) -> None:
    """With the elements in the cache and without; a retry writes the same bytes."""
    slot = slot_on(store, tmp_path)
    fill(slot, 5000)
    first: list[Change] = []
    for read in (True, False, True):
        slot.begin()
        slot.key("a")
        assert not read or len(list(elements(slot).get())) == 5000
        elements(slot).add(1)
        assert not read or len(list(elements(slot).get())) == 5001
        if not read:
            slot.backend.abort_batch()
            continue
        finished = list(slot.finish())
        first = first or finished
        assert finished == first
        slot.begin(slot.backend.batch)
        slot.key("a")
        elements(slot).add(1)
        assert slot.finish() == first
        slot.begin(slot.backend.batch)
        slot.backend.abort_batch()
    with slot.batch("a"):
        assert list(elements(slot).get()) == list(range(5000))


def test_a_batch_that_spills_appends_to_what_it_has_spilled(store: KeyValueStore, tmp_path: Path) -> None:
    slot = slot_on(store, tmp_path, BatchBudget(0, 1))
    fill(slot, 5000)
    with slot.batch():
        for number in range(20):
            slot.key("ab"[number % 2])
            elements(slot).add(number)
    assert len({key for key, _ in slot.changes}) == len(slot.changes), "a key is passed once"
    slot.backend.apply_pending()
    with slot.batch("a"):
        assert list(elements(slot).get()) == [*range(5000), *range(0, 20, 2)]


def test_a_long_list_of_an_earlier_release_reads_and_is_written_in_segments_from_its_next_change_on(
    store: KeyValueStore, tmp_path: Path
) -> None:
    """All of its elements are in one value under the list's key."""
    old = slot_on(store, tmp_path)
    fill(old, 3)
    (key,) = old.entries()
    store.write([(key, bytes.fromhex("01" + "00002710" + "".join(f"00000008{number:016x}" for number in range(10_000))))])
    slot = KeyedSlot(store, tmp_path, ROOM, old.registry)
    with slot.batch("a"):
        assert list(elements(slot).get()) == list(range(10_000))
    with slot.batch("a"):
        elements(slot).add(1)
    assert written(slot.changes) > 100_000
    with slot.batch("a"):
        elements(slot).add(2)
    assert written(slot.changes) < 150
    slot.backend.apply_pending()
    with slot.batch("a"):
        assert list(elements(slot).get()) == [*range(10_000), 1, 2]


def test_elements_of_a_long_list_expire_and_go(store: KeyValueStore, tmp_path: Path) -> None:
    """A read hides what has expired, the sweep removes it segment by segment, and in the end the head."""
    slot = slot_on(store, tmp_path)
    fill(slot, 5000, ttl=True)
    slot.now_ms += TTL_MS // 2
    with slot.batch("a"):
        elements(slot, ttl=True).add_all([1, 2])
    slot.now_ms += TTL_MS // 2
    with slot.batch("b"):
        elements(slot, ttl=True).add(0)
    slot.backend.apply_pending()
    slot.backend.sweep(idle_entries=100)
    assert sorted(map(len, slot.entries().values())) == [25, 25, 45], "the first segment is gone; a head and two short values"
    with slot.batch("a"):
        assert list(elements(slot, ttl=True).get()) == [1, 2]
    slot.now_ms += TTL_MS
    with slot.batch("c"):
        pass
    slot.backend.apply_pending()
    slot.backend.sweep(idle_entries=100)
    assert slot.entries() == {}


def test_a_read_writes_a_long_list_again_only_once_a_quarter_has_expired(store: KeyValueStore, tmp_path: Path) -> None:
    slot = slot_on(store, tmp_path)
    fill(slot, 1000, ttl=True)
    slot.now_ms += TTL_MS // 2
    with slot.batch("a"):
        elements(slot, ttl=True).add_all(range(4000))
    slot.now_ms += TTL_MS // 2
    with slot.batch("a"):
        assert list(elements(slot, ttl=True).get()) == list(range(4000))
    assert slot.changes == [], "a fifth has expired"
    slot.now_ms += TTL_MS // 2
    with slot.batch("a"):
        assert list(elements(slot, ttl=True).get()) == []
    slot.backend.apply_pending()
    assert slot.entries() == {}


@pytest.mark.parametrize("data", [b"\x06", b"\x06" + bytes(23), b"\x06" + bytes(24), b"\x06" + bytes(25)])
def test_a_damaged_head_is_told_by_the_name_of_its_state(tmp_path: Path, data: bytes) -> None:
    store = MemoryStore()
    old = slot_on(store, tmp_path)
    fill(old, 1)
    (key,) = old.entries()
    store.write([(key, data)])
    slot = KeyedSlot(store, tmp_path, ROOM, old.registry)
    slot.begin()
    slot.key("a")
    with pytest.raises(CorruptDataError, match=r"state 'list' of uid 'step': damaged list"):
        list(elements(slot).get())


def test_segments_outside_of_the_head_are_no_part_of_the_list(store: KeyValueStore, tmp_path: Path) -> None:
    """What a sweep has not reached yet, for the slot and for those who read a checkpoint."""
    slot = slot_on(store, tmp_path)
    fill(slot, 5000)
    (key, _), (_, segment) = slot.entries().items()
    store.write([(key, Head(1, 3, NEVER_MS).pack()), (key + bytes(7) + b"\2", segment), (key + bytes(7) + b"\3", segment)])
    again = KeyedSlot(store, tmp_path, NONE, slot.registry)
    with again.batch("a"):
        assert list(elements(again).get()) == list(range(5000))
    assert list(whole_lists(again.entries().items(), "list")) == [(key, segment)]
    store.write([(key, None)])
    assert list(whole_lists(store.scan(b"", b"\xff\xff"), "list")) == []
