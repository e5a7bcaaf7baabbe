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
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot

from .expiring_states import ttl, value_descriptor, with_ttl

MakeSlot = Callable[..., KeyedSlot]


def sweep(slot: KeyedSlot) -> None:
    """Commit the finished batch and clean up after it, as a slot does."""
    slot.backend.apply_pending()
    while slot.backend.sweep():
        pass


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


def test_an_expired_entry_is_deleted_within_two_fifths_of_the_time_to_live(slot: KeyedSlot) -> None:
    """By the batch that is two fifths of the time to live later, however finely the clock moves; not all of it is done at once."""
    value = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch():
        for letter in "abcdefghijklmnopqrstuvwxyz":
            slot.key(letter)
            value.update(1)
    stored = []
    for _ in range(142):
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


@pytest.mark.parametrize("begins_pay", [False, True])
def test_a_map_ordered_by_age_stays_bounded(make_slot: MakeSlot, begins_pay: bool) -> None:
    """One busy key with 30,000 live entries by time, 3,000 new per batch: at most 1.5 times the live ones and two batches are stored.

    Also where a job never pauses, so that only beginning batches clean up, each a bounded number.
    """
    slot = make_slot()
    state = declared(slot, "map", StateTtlConfig.new_builder(Time.milliseconds(1000)).build())
    stored = 0
    for batch in range(60):
        slot.now_ms += 100
        slot.begin()
        if begins_pay:
            slot.backend.sweep_overdue()
        slot.key("a")
        for number in range(3000):
            state.put(batch * 3000 + number, 1)
        slot.finish()
        if not begins_pay:
            sweep(slot)
        stored = len(slot.entries())
        assert stored <= 1.5 * 30_000 + 2 * 3000, f"batch {batch}"
    assert stored >= 27_000


def test_a_batch_pays_for_a_bounded_number_of_checks(make_slot: MakeSlot) -> None:
    """After a long snapshot, during which nothing was cleaned up, a beginning batch checks five entries per entry written and 1,000 more."""
    slot = make_slot()
    state = declared(slot, "map", ttl())
    with slot.batch("a"):
        for number in range(50_000):
            state.put(number, 1)
    slot.now_ms += 1000
    for _ in range(2):
        with slot.batch("a"):
            for number in range(100):
                state.put(-number, 1)
    deleted = []
    write, written = slot.store.write, []

    def recorded(changes: Any) -> None:
        written.append(list(changes))
        write(written[-1])

    for _ in range(5):
        with slot.batch("a"):
            before = len(slot.entries())
            slot.store.write = recorded  # type: ignore[method-assign]  # the only way to see single writes
            slot.backend.sweep_overdue()
            slot.store.write = write  # type: ignore[method-assign]
            deleted.append(before - len(slot.entries()))
            for number in range(100):
                state.put(-number, 1)
    assert all(1000 <= number <= 1500 for number in deleted), deleted
    assert max(map(len, written)) <= 1000, "memory for deletes is bounded"


@pytest.mark.parametrize(
    ("configure", "left"),
    [
        (lambda builder: builder, 0),
        (Builder.disable_cleanup_in_background, 9),
        (lambda builder: builder.cleanup_incrementally(2).disable_cleanup_in_background(), 9 - 2),
        (lambda builder: builder.disable_cleanup_in_background().cleanup_incrementally(2), 9 - 2),
        (lambda builder: builder.cleanup_incrementally(2, True).disable_cleanup_in_background(), 9 - 2 - 2 * 3),
        (lambda builder: builder.cleanup_incrementally(2, True), 0),
        (lambda builder: builder.cleanup_in_rocksdb_compact_filter(1000).disable_cleanup_in_background(), 0),
        (lambda builder: builder.cleanup_full_snapshot().disable_cleanup_in_background(), 9),
    ],
)
def test_strategies_set_the_pace(slot: KeyedSlot, configure: Callable[[Builder], Builder], left: int) -> None:
    """Without the default exactly the checks of the explicit strategy: per access, and per row if asked; opening a key group is 8 checks."""
    state = slot.backend.value_state(value_descriptor(ttl(configure)))
    with slot.batch():
        for key in "`bcdefghi":  # in order of key groups; the first one is the first of the slot
            slot.key(key)
            state.update(1)
    sweep(slot)
    slot.now_ms += 200
    slot.begin()
    slot.key("z")
    state.update(1)
    slot.backend.finish_batch(lambda changes: None, rows=3)
    sweep(slot)
    assert len(slot.entries()) == left + 1


def test_reading_is_an_access(slot: KeyedSlot) -> None:
    """A batch that only reads lets explicit checks run too; a key that is read and written counts once."""
    descriptor = value_descriptor(ttl(lambda builder: builder.cleanup_incrementally(1).disable_cleanup_in_background()))
    state = slot.backend.value_state(descriptor)
    with slot.batch():
        for key in "`bcdefghi":
            slot.key(key)
            state.update(1)
    sweep(slot)
    slot.now_ms += 200
    with slot.batch("z"):
        state.value()
    sweep(slot)
    assert len(slot.entries()) == 8
    with slot.batch("y"):
        state.value()
        state.update(1)
    sweep(slot)
    assert len(slot.entries()) == 8 - 1 + 1


def test_what_cleanup_did_is_reported(slot: KeyedSlot) -> None:
    """Deleted entries by state, and the part of a round that was left over when the clock moved."""
    state = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch():
        for letter in "abcdefghij":
            slot.key(letter)
            state.update(1)
    sweep(slot)
    assert slot.backend.cleanup_report().expired == {"value": 0}
    slot.now_ms += 200
    with slot.batch("z"):
        state.update(1)
    sweep(slot)
    report = slot.backend.cleanup_report()
    assert (report.expired, report.lag) == ({"value": 10}, 0)
    assert report.seconds > 0
    for _ in range(2):
        slot.now_ms += 30
        slot.backend.reached(slot.now_ms)
    assert slot.backend.cleanup_report().lag == pytest.approx(30 / 40)


def test_explicit_checks_never_make_cleanup_slower(slot: KeyedSlot) -> None:
    """Rounds that accesses pay for do not count for the schedule: when accesses end, an entry is still deleted within two fifths of its life."""
    state = slot.backend.value_state(value_descriptor(ttl(lambda builder: builder.cleanup_incrementally(1000))))
    for _ in range(50):
        slot.now_ms += 1
        with slot.batch():
            for letter in "abcdefghijklmnopqrstuvwxyz":
                slot.key(letter)
                state.update(1)
        sweep(slot)
    slot.now_ms += 99
    for _ in range(44):
        slot.now_ms += 1
        with slot.batch():
            pass
        sweep(slot)
    assert len(slot.entries()) == 0


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


def test_keys_that_never_come_back(tmp_path: Path) -> None:
    """200,000 keys, 5,000 per batch, each living for ten batches: stored entries and the files of RocksDB stay bounded by the live ones."""
    store = RocksDBStore(tmp_path / "db")
    slot = KeyedSlot(store, tmp_path, BatchBudget(), key_groups=LETTER_GROUPS)
    config = StateTtlConfig.new_builder(Time.milliseconds(1000)).build()
    state = slot.backend.value_state(with_ttl(ValueStateDescriptor("value", Types.STRING()), config))
    live, entry_bytes, text = 50_000, 120, "x" * 80
    for batch in range(40):
        slot.now_ms += 100
        with slot.batch():
            for number in range(5000):
                slot.key(f"{chr(97 + number % 26)}{batch}-{number}")
                state.update(f"{number * 2654435761 % (1 << 32):x}{text}")
        sweep(slot)
        store.flush()
        if batch % 4 == 3:
            assert len(slot.entries()) <= 1.5 * live + 2 * 5000, f"batch {batch}"
            assert sum(file["size"] for file in store._open().live_files()) <= 3 * live * entry_bytes, f"batch {batch}"
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
    slot.now_ms += 200
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
