"""State, work and files stay bounded, whatever expires and whatever comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from statefulspark.state.api.descriptors import (
    ValueStateDescriptor,
)
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot

from .expiring_states import MakeSlot, declared, sweep, ttl, with_ttl, write


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


@pytest.mark.parametrize("then", ["spread", "one key", "few keys"])
def test_keys_that_are_spread_evenly_cost_few_checks(make_slot: MakeSlot, then: str) -> None:
    """An entry is checked 2.2 times before it goes, and at most 1.5 times the live entries and two batches are stored.

    Also after all traffic has gone to one key or to a few, whose expired entries wait in few places.
    """
    slot = make_slot()
    lives_for, arriving = 20, 400
    state = declared(slot, "map", StateTtlConfig.new_builder(Time.milliseconds(100 * lives_for)).build())
    checks = 0
    scan = slot.store.scan

    def counted(first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        nonlocal checks
        for entry in scan(first, end):
            checks += 1
            yield entry

    def run(batches: int, key_of: Callable[[int], str]) -> None:
        for _ in range(batches):
            slot.now_ms += 100
            with slot.batch():
                for number in islice(numbers, arriving):
                    slot.key(key_of(number))
                    state.put(number, 1)
            slot.store.scan = counted  # type: ignore[method-assign]  # the only way to count checks
            sweep(slot)
            slot.store.scan = scan  # type: ignore[method-assign]
            assert len(slot.entries()) <= (1.5 * lives_for + 2) * arriving

    numbers = count()
    run(2 * lives_for, lambda number: f"{chr(97 + number % 26)}{number}")
    checks = 0
    if then == "spread":
        run(3 * lives_for, lambda number: f"{chr(97 + number % 26)}{number}")
        assert checks < 2.5 * 3 * lives_for * arriving, "six of the 32 key groups have no letter"
    else:
        keys = "k" if then == "one key" else "dk"
        run(3 * lives_for, lambda number: keys[number % len(keys)])


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
