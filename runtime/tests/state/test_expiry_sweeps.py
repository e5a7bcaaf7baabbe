"""Sweeps remove what has expired and nobody reads: what they may remove, when, and how fast."""

from __future__ import annotations

import itertools

from statefulspark.state.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import KeyedSlot

from .expiring_states import MakeSlot, sweep, ttl, value_descriptor, with_ttl


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
    for later_ms, left in ((99, 20), (41, 5)):
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
    slot.backend.reached(expires_ms - 1)
    sweep(slot)
    assert len(slot.entries()) == 3000
    left = []
    slot.backend.reached(expires_ms + 40)
    while slot.backend.sweep():
        left.append(len(slot.entries()))
    assert len(slot.entries()) == 0
    assert all(before - after <= 1000 for before, after in itertools.pairwise([3000, *left, 0]))
    slot.now_ms = expires_ms + 40
    with slot.batch("a1"):
        assert value.value() is None


def test_an_expired_entry_is_deleted_within_nine_tenths_of_its_time_to_live(slot: KeyedSlot) -> None:
    """By the batch that is nine tenths of the time to live later, however finely the clock moves; not all of it is done at once."""
    value = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch():
        for letter in "abcdefghijklmnopqrstuvwxyz":
            slot.key(letter)
            value.update(1)
    stored = []
    for _ in range(192):
        slot.now_ms += 1
        with slot.batch():
            pass
        sweep(slot)
        stored.append(len(slot.entries()))
    assert stored[98] == 26
    assert stored[-1] == 0
    assert all(0 <= before - after <= 2 for before, after in itertools.pairwise(stored))


def test_a_batch_that_may_be_undone_is_no_reason_to_sweep(slot: KeyedSlot) -> None:
    """Until a batch is committed its processing time is no one's, so what expires with it stays."""
    value = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch("a"):
        value.update(1)
    slot.backend.apply_pending()
    slot.now_ms += 200
    with slot.batch("b"):
        value.update(2)
    while slot.backend.sweep():
        pass
    assert len(slot.entries()) == 1
    slot.begin(slot.backend.batch)
    while slot.backend.sweep():
        pass
    assert len(slot.entries()) == 1


def test_a_cold_list_is_cut_when_a_quarter_has_expired(slot: KeyedSlot) -> None:
    """A list that nobody touches any more loses its expired elements, and is not written again for each one."""
    state = slot.backend.list_state(with_ttl(ListStateDescriptor("list", Types.LONG()), ttl()))
    for number in range(8):
        slot.now_ms += 10
        with slot.batch("a"):
            state.add(number)
    sweep(slot)

    def elements() -> int:
        return sum(len(data) // 20 for data in slot.entries().values())

    sizes = [elements()]
    slot.now_ms += 20
    for _ in range(12):
        slot.now_ms += 10
        slot.backend.reached(slot.now_ms)
        sweep(slot)
        sizes.append(elements())
    assert sizes[-1] == 0
    assert len(set(sizes)) > 3
    assert all(after == before or after * 4 <= before * 3 for before, after in itertools.pairwise(sizes)), sizes


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
    slot.now_ms += 200
    with slot.batch():
        pass
    sweep(slot)
    assert len(slot.entries()) == 5000


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
