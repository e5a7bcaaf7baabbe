"""Lists that are longer than one stored value: what an append writes and reads, what replaces them, and how much memory they take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.segments import is_segment
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.open_store import sizes_of
from statefulspark.state.tables.lists import SEGMENT_BYTES, TAIL_BYTES
from statefulspark.testing.keyed_state import ASCII_GROUPS, KeyedSlot

from .long_lists import NO_CACHE, ROOM, append, elements, fill, read, slot_on, written

_STORED_BYTES = 12
"""Of a LONG in a list."""


class Watched(HeapStore):
    """Counts what is read by scans."""

    scanned = 0

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(first, end):
            self.scanned += 1
            yield entry


@pytest.mark.parametrize("budget", [ROOM, NO_CACHE], ids=["cached", "uncached"])
@pytest.mark.parametrize("ttl", [False, True])
def test_appends_cost_the_same_whatever_the_length(store: KeyValueStore, tmp_path: Path, budget: BatchBudget, ttl: bool) -> None:
    """Each of 200 appends, one per batch, writes at most the tail, a head and two keys; no more than an append to a list of 10 elements."""
    slot = slot_on(store, tmp_path, budget)
    sums = []
    for key, count, appends in (("a", 10, 10), ("b", 1_000, 200), ("c", 100_000, 200)):
        fill(slot, count, ttl=ttl, key=key)
        sizes = []
        for number in range(appends):
            append(slot, number, ttl=ttl, key=key)
            sizes.append(written(slot.changes))
        assert max(sizes) <= TAIL_BYTES + 200
        sums.append(sum(sizes) / appends)
        assert read(slot, ttl=ttl, key=key) == [*range(count), *range(appends)]
    assert sums[2] == pytest.approx(sums[1], rel=0.02)
    assert sums[2] <= sums[0] * 1.25


def test_an_append_does_not_read_the_segments(tmp_path: Path) -> None:
    """Not with a cold cache either; a read takes them in one scan."""
    store = Watched()
    fill(slot_on(store, tmp_path), 50_000)
    again = slot_on(store, tmp_path, NO_CACHE)
    before = store.scanned
    for number in range(3):
        append(again, number)
    assert store.scanned == before
    assert read(again)[-4:] == [49_999, 0, 1, 2]
    assert store.scanned - before == 50_000 * _STORED_BYTES // SEGMENT_BYTES + 1


@pytest.mark.parametrize("ttl", [False, True])
def test_a_list_of_one_append_per_batch_has_few_segments(tmp_path: Path, ttl: bool) -> None:
    """Each holds more than the tail may: 3,000 appends of 12 (with time to live 20) bytes give fewer than one segment per 256 bytes."""
    slot = slot_on(HeapStore(), tmp_path, NO_CACHE)
    for number in range(3000):
        append(slot, number, ttl=ttl)
    size_bytes = 3000 * (20 if ttl else 12)
    assert size_bytes // (2 * TAIL_BYTES) < sum(map(is_segment, slot.entries().values())) <= size_bytes // TAIL_BYTES
    assert read(slot, ttl=ttl) == list(range(3000))


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2000, 20_000])
def test_what_replaces_a_long_list_leaves_nothing_of_it(store: KeyValueStore, tmp_path: Path, count: int, loaded: bool) -> None:
    slot = slot_on(store, tmp_path)
    fill(slot, 6000)
    for number in range(300):
        append(slot, number)
    fill(slot, 10, key="b")
    if not loaded:
        slot = slot_on(store, tmp_path, ROOM, slot.registry)
    with slot.batch("a"):
        elements(slot).add(1)
        assert not loaded or len(list(elements(slot).get())) == 6301
        elements(slot).update(range(count))
    slot.backend.apply_pending()
    segments = -(-count * _STORED_BYTES // SEGMENT_BYTES) if count > 1 else 0
    assert len(slot.entries()) == 1 + (segments + 1 if count else 0), "the other key's list stays"
    assert read(slot) == list(range(count))
    assert read(slot, key="b") == list(range(10))


def test_a_batch_that_is_rolled_back_leaves_a_long_list_as_it_was(store: KeyValueStore, tmp_path: Path) -> None:
    """With the segments in the cache and without; a retry writes the same bytes."""
    slot = slot_on(store, tmp_path)
    fill(slot, 5000)
    first: list[Change] = []
    for cached in (True, False, True):
        slot.begin()
        slot.key("a")
        assert not cached or len(list(elements(slot).get())) == 5000
        elements(slot).add_all(range(200))
        assert not cached or len(list(elements(slot).get())) == 5200
        if not cached:
            slot.backend.abort_batch()
            continue
        finished = list(slot.finish())
        first = first or finished
        assert finished == first
        slot.begin(slot.backend.batch)
        slot.key("a")
        elements(slot).add_all(range(200))
        assert slot.finish() == first
        slot.begin(slot.backend.batch)
        slot.backend.abort_batch()
    assert read(slot) == list(range(5000))


@pytest.mark.parametrize("dirty_bytes", [1, 20_000])
def test_a_batch_that_spills_appends_to_what_it_has_spilled(store: KeyValueStore, tmp_path: Path, dirty_bytes: int) -> None:
    """And replaces it: the segments in the spill go too."""
    slot = slot_on(store, tmp_path, BatchBudget(0, dirty_bytes))
    fill(slot, 5000)
    with slot.batch():
        for number in range(600):
            slot.key("ab"[number % 2])
            elements(slot).add(number)
    assert len({key for key, _ in slot.changes}) == len(slot.changes), "a key is passed once"
    slot.backend.apply_pending()
    assert read(slot) == [*range(5000), *range(0, 600, 2)]
    with slot.batch("a"):
        for number in range(600):
            elements(slot).add(number)
        assert len(list(elements(slot).get())) == 5900
        elements(slot).update([1])
    slot.backend.apply_pending()
    assert read(slot) == [1]
    assert sum(map(is_segment, slot.entries().values())) == sum(is_segment(data) for key, data in slot.entries().items() if b"b" in key)


def test_lists_that_are_read_count_for_the_cache(tmp_path: Path) -> None:
    """A cache of 1 MB keeps the segments of few of 40 lists of 100 KB, and nothing of a list that is larger than half of it."""
    store = HeapStore()
    writer = slot_on(store, tmp_path)
    keys = [chr(97 + number % 26) + str(number) for number in range(40)]
    for key in keys:
        fill(writer, 2000, key=key)
    fill(writer, 20_000, key="z")
    reader = slot_on(store, tmp_path, BatchBudget(1 << 20, 1 << 20), writer.registry)
    reader.begin()
    for key in [*keys, "z", *keys]:
        reader.key(key)
        assert len(list(elements(reader).get())) == (20_000 if key == "z" else 2000)
        assert loaded_bytes(reader) <= 1 << 20
    assert loaded_bytes(reader) > 1 << 18, "something is kept"


def test_appending_to_lists_that_are_read_keeps_the_bound(tmp_path: Path) -> None:
    """Changes have only what the batch adds: reading and appending to 40 long lists does not spill, and the cache keeps its bound."""
    slot = slot_on(HeapStore(), tmp_path, BatchBudget(1 << 20, 1 << 18))
    keys = [chr(97 + number % 26) + str(number) for number in range(40)]
    for key in keys:
        fill(slot, 2000, key=key)
    for turn in range(3):
        slot.begin()
        for key in keys:
            slot.key(key)
            elements(slot).add(turn)
            assert len(list(elements(slot).get())) == 2001 + turn
            assert loaded_bytes(slot) <= 1 << 20
        assert slot.backend._layers.spills == 0
        slot.finish()
        slot.backend.apply_pending()
        assert loaded_bytes(slot) <= 1 << 20


def loaded_bytes(slot: KeyedSlot) -> int:
    """Memory of segments that the table keeps, counted here and not as the table does."""
    table: Any = elements(slot)
    kept = {id(entry): entry for part in (table._young, table._old) for entry in part.values() if getattr(entry, "loaded", None)}
    return sum(len(payload) + 48 for entry in kept.values() for payload in entry.loaded.payloads)


def test_a_list_is_one_entry_of_the_metric(store: KeyValueStore, tmp_path: Path) -> None:
    """Also when its segments are many; their bytes count."""
    slot = slot_on(store, tmp_path)
    for key in ("a", "b"):
        fill(slot, 10_000, key=key)
    fill(slot, 2, key="c")
    sizes = sizes_of(store, ASCII_GROUPS)
    sizes.step(60.0)
    (size,) = sizes.by_state_id().values()
    assert size.entries == 3
    assert size.size_bytes == written(slot.entries().items())
