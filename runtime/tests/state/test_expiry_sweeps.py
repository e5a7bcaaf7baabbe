"""Sweeps remove what has expired and nobody reads: what they may remove, when, and how fast."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statefulspark.state.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.api.ttl import Builder, StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot

from .expiring_states import ttl, value_descriptor, with_ttl

MakeSlot = Callable[..., KeyedSlot]


def sweep(slot: KeyedSlot) -> None:
    """Commit the finished batch and clean up after it, as a slot does."""
    slot.backend.apply_pending()
    slot.backend.sweep()


def test_sweep_removes_what_nobody_reads(slot: KeyedSlot) -> None:
    """Expired values, lists and map entries go from the store without a read; no changelog needs to know."""
    value = slot.backend.value_state(value_descriptor(ttl()))
    elements = slot.backend.list_state(with_ttl(ListStateDescriptor("list", Types.STRING()), ttl()))
    entries = slot.backend.map_state(with_ttl(MapStateDescriptor("map", Types.STRING(), Types.LONG()), ttl()))
    forever = slot.backend.value_state(ValueStateDescriptor("forever", Types.LONG()))
    with slot.batch():
        for key in "abcde":
            slot.key(key)
            value.update(1)
            elements.add_all(["x", "y"])
            entries.put_all({"x": 1})
            forever.update(1)
    for later_ms, left in ((99, 20), (1, 5)):
        slot.now_ms += later_ms
        with slot.batch():
            pass
        assert slot.changes == []
        sweep(slot)
        assert len(slot.entries()) == left


def test_an_idle_slot_sweeps_by_the_clock_of_the_job(slot: KeyedSlot) -> None:
    """A slot that no rows reach removes what has expired by the job's last committed batch, a bounded number of entries at a time."""
    value = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch():
        for number in range(3000):
            slot.key(f"a{number}")
            value.update(1)
    slot.backend.apply_pending()
    expires_ms = slot.now_ms + 100
    assert not slot.backend.sweep(reached_ms=expires_ms - 1, idle_entries=1000)
    assert len(slot.entries()) == 3000
    left = []
    while slot.backend.sweep(reached_ms=expires_ms, idle_entries=1000):
        left.append(len(slot.entries()))
    assert len(slot.entries()) == 0
    assert all(before - after <= 1000 for before, after in itertools.pairwise([3000, *left, 0]))
    slot.now_ms = expires_ms
    with slot.batch("a1"):
        assert value.value() is None


def test_a_batch_that_may_be_undone_is_no_reason_to_sweep(slot: KeyedSlot) -> None:
    """Until a batch is committed its processing time is no one's, so what expires with it stays."""
    value = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch("a"):
        value.update(1)
    slot.backend.apply_pending()
    slot.now_ms += 100
    with slot.batch("b"):
        value.update(2)
    slot.backend.sweep()
    assert len(slot.entries()) == 1
    slot.begin(slot.backend.batch)
    slot.backend.sweep()
    assert len(slot.entries()) == 1


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_state_stays_bounded_under_constant_arrival(slot: KeyedSlot, kind: str) -> None:
    """New keys in each batch, each living for two batches, never read again: at most half as many entries again are stored as live."""
    state = declared(slot, kind, ttl())
    arriving, lives_for = 3000, 2
    for batch in range(12):
        slot.now_ms += 100 // lives_for
        with slot.batch():
            for number in range(arriving):
                slot.key(f"{chr(97 + number % 26)}{batch}-{number}")
                write(state, batch)
        sweep(slot)
        assert len(slot.entries()) <= 1.5 * arriving * (lives_for + 1), f"batch {batch}"


@pytest.mark.parametrize("kind", ["list", "map"])
def test_the_state_of_one_busy_key_stays_bounded(slot: KeyedSlot, kind: str) -> None:
    """Elements that are only ever added to one key, in every batch, go when they expire though the key is always being written."""
    state = declared(slot, kind, ttl())
    for batch in range(60):
        slot.now_ms += 25
        with slot.batch("a"):
            for number in range(50):
                write(state, batch * 50 + number)
        sweep(slot)
        written = sum(len(value or b"") for _, value in slot.changes)
        assert written <= 5 * 50 * 40, f"batch {batch}"
        assert sum(map(len, slot.entries().values())) <= 1.5 * 5 * 50 * 40, f"batch {batch}"


@pytest.mark.parametrize(
    ("configure", "left"),
    [
        (lambda builder: builder, 0),
        (Builder.disable_cleanup_in_background, 9),
        (lambda builder: builder.cleanup_incrementally(2).disable_cleanup_in_background(), 9 - 2),
        (lambda builder: builder.disable_cleanup_in_background().cleanup_incrementally(2), 9 - 2),
        (lambda builder: builder.cleanup_incrementally(2, True), 9 - 2 - 2 * 3),
        (lambda builder: builder.cleanup_in_rocksdb_compact_filter(1000).disable_cleanup_in_background(), 0),
        (lambda builder: builder.cleanup_full_snapshot().disable_cleanup_in_background(), 9),
    ],
)
def test_strategies_set_the_pace(slot: KeyedSlot, configure: Callable[[Builder], Builder], left: int) -> None:
    """Entries per access, and per row if asked; switching the default off leaves explicit strategies on."""
    state = slot.backend.value_state(value_descriptor(ttl(configure)))
    with slot.batch():
        for key in "bcdefghij":
            slot.key(key)
            state.update(1)
    sweep(slot)
    slot.now_ms += 100
    slot.begin()
    slot.key("z")
    state.update(1)
    slot.backend.finish_batch(lambda changes: None, rows=3)
    sweep(slot)
    assert len(slot.entries()) == left + 1


def test_a_cold_list_is_cut_when_a_quarter_has_expired(slot: KeyedSlot) -> None:
    """A list that nobody touches any more loses its expired elements, and is not written again for each one."""
    state = slot.backend.list_state(with_ttl(ListStateDescriptor("list", Types.LONG()), ttl()))
    for number in range(8):
        slot.now_ms += 10
        with slot.batch("a"):
            state.add(number)
    sweep(slot)
    sizes = []
    slot.now_ms += 20
    for _ in range(8):
        slot.now_ms += 10
        slot.backend.sweep(reached_ms=slot.now_ms, idle_entries=10)
        sizes.append(sum(map(len, slot.entries().values())))
    assert sizes == [165, 125, 125, 85, 65, 45, 25, 0]


def test_the_disk_shrinks(tmp_path: Path) -> None:
    """RocksDB's files hold a few times the live entries, however many have come and gone: what is swept is compacted away."""
    store = RocksDBStore(tmp_path / "db")
    slot = KeyedSlot(store, tmp_path, BatchBudget(), key_groups=LETTER_GROUPS)
    state = slot.backend.value_state(with_ttl(ValueStateDescriptor("value", Types.BYTE()), ttl()))
    came = 0
    for batch in range(40):
        slot.now_ms += 50
        with slot.batch():
            for number in range(1000):
                slot.key(f"{chr(97 + number % 26)}{batch}-{number}-{'x' * 100}")
                state.update(1)
                came += 130
        sweep(slot)
        store.flush()
    assert store.size_bytes() < came / 8
    store.close()


def test_a_sweep_skips_what_is_not_its_own(make_slot: MakeSlot) -> None:
    """Many entries of other states, in every key group, cost little: a sweep asks the store for the next range of its own."""
    slot = make_slot()
    other = slot.backend.map_state(MapStateDescriptor("other", Types.LONG(), Types.LONG()))
    value = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch():
        for letter in "abcdefghij":
            slot.key(letter)
            value.update(1)
            other.put_all(dict.fromkeys(range(500), 1))
    slot.now_ms += 100
    with slot.batch():
        pass
    sweep(slot)
    assert len(slot.entries()) == 5000


def declared(slot: KeyedSlot, kind: str, config: StateTtlConfig) -> Any:
    backend = slot.backend
    if kind == "value":
        return backend.value_state(value_descriptor(config))
    if kind == "list":
        return backend.list_state(with_ttl(ListStateDescriptor("list", Types.LONG()), config))
    return backend.map_state(with_ttl(MapStateDescriptor("map", Types.LONG(), Types.LONG()), config))


def write(state: Any, number: int) -> None:
    if hasattr(state, "put"):
        state.put(number, number)
    elif hasattr(state, "add"):
        state.add(number)
    else:
        state.update(number)


def test_sweep_leaves_what_lives_or_was_changed(slot: KeyedSlot) -> None:
    """What the running batch wrote, and what has not expired, stays; a list stays while one element lives."""
    value = slot.backend.value_state(value_descriptor(ttl()))
    elements = slot.backend.list_state(with_ttl(ListStateDescriptor("list", Types.STRING()), ttl()))
    entries = slot.backend.map_state(with_ttl(MapStateDescriptor("map", Types.STRING(), Types.LONG()), ttl()))
    with slot.batch("a"):
        value.update(1)
        elements.add("old")
        entries.put("x", 1)
    slot.now_ms += 50
    with slot.batch("b"):
        value.update(2)
    with slot.batch("a"):
        elements.add("new")
    slot.now_ms += 50
    with slot.batch("a"):
        value.update(3)
        entries.put("x", 3)
    for _ in range(5):
        with slot.batch():
            pass
        sweep(slot)
    with slot.batch("a"):
        assert (value.value(), list(elements.get()), entries.get("x")) == (3, ["new"], 3)
        slot.key("b")
        assert value.value() == 2
