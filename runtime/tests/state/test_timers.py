"""Timers: their order, their bounds, and that asking for due ones costs nothing when there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.backend import BatchBudget
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS, TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import KeyedSlot, key_group

MakeSlot = Callable[..., KeyedSlot]


COUNT = ValueStateDescriptor("count", Types.LONG())
KEYS = [f"a{number:03d}" for number in range(150)]


class CountingStore(HeapStore):
    """Counts reads."""

    reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads += 1
        return super().get_many(keys)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.reads += 1
        return super().scan(first, end)


def register(slot: KeyedSlot, *timers: tuple[int, str]) -> None:
    for timestamp_ms, key in timers:
        slot.key(key)
        slot.backend.timers.register(EVENT_TIMERS, timestamp_ms)


def due(slot: KeyedSlot, up_to_ms: int) -> list[tuple[int, str]]:
    return [(timestamp_ms, key) for timestamp_ms, key, _ in slot.backend.timers.due(EVENT_TIMERS, up_to_ms)]


def slot_with_stored_timers(folder: Path) -> tuple[KeyedSlot, CountingStore]:
    """Return a slot in which each of `KEYS` has its number as value and as time of a timer, all stored and none in memory."""
    store = CountingStore()
    slot = KeyedSlot(store, folder, BatchBudget(cache_bytes=1 << 20, dirty_bytes=1 << 20), key_groups=KeyGroupRange(97, 97))
    with slot.batch():
        state = slot.backend.value_state(COUNT)
        for number, key in enumerate(KEYS):
            slot.key(key)
            state.update(number)
        register(slot, *((number, key) for number, key in enumerate(KEYS)))
    slot.backend.apply_pending()
    slot.backend = slot.new_backend()
    slot.backend.batch = 0
    return slot, store


def test_order_is_time_then_key_group_then_key(slot: KeyedSlot) -> None:
    """The same order whether timers come from memory, the store or both."""
    timers = [(time, key) for time in (-5, 0, 7) for key in ("b", "ab", "a", "z")]
    expected = sorted(timers, key=lambda timer: (timer[0], key_group(timer[1]), timer[1]))
    with slot.batch():
        register(slot, *timers)
        assert due(slot, 100) == expected
        register(slot, *timers[::2])
    with slot.batch():
        register(slot, *timers[1::2])
        assert due(slot, 100) == expected
    with slot.batch():
        assert due(slot, 100) == []
    slot.backend.apply_pending()
    assert slot.entries() == {}


def test_one_timer_per_key_and_time(slot: KeyedSlot) -> None:
    """Registering again, in the same batch or a later one, changes nothing; kinds are apart."""
    with slot.batch():
        register(slot, (5, "a"), (5, "a"))
        slot.backend.timers.register(PROCESSING_TIMERS, 5)
    with slot.batch():
        register(slot, (5, "a"))
        assert due(slot, 5) == [(5, "a")]
        assert len(list(slot.backend.timers.due(PROCESSING_TIMERS, 5))) == 1


def test_timers_registered_while_firing_fire_too(slot: KeyedSlot) -> None:
    """A timer that registers the next one until the clock is reached fires each of them in this round, past ones next."""
    with slot.batch():
        register(slot, (1, "a"), (6, "b"))
    with slot.batch():
        fired = []
        for timestamp_ms, key, _ in slot.backend.timers.due(EVENT_TIMERS, 6):
            fired.append((timestamp_ms, key))
            if key == "a":
                register(slot, (timestamp_ms + 2, "a"))
            elif timestamp_ms == 6:
                register(slot, (0, "c"))
        assert fired == [(1, "a"), (3, "a"), (5, "a"), (6, "b"), (0, "c")]
        assert slot.backend.timers.min_timestamp(EVENT_TIMERS) == 7


def test_timer_deleted_while_firing_does_not_fire(slot: KeyedSlot) -> None:
    """Deleting a due timer of the same key in time keeps it from firing."""
    with slot.batch():
        register(slot, (1, "a"), (2, "a"))
    with slot.batch():
        fired = []
        for timestamp_ms, key, _ in slot.backend.timers.due(EVENT_TIMERS, 6):
            fired.append(timestamp_ms)
            slot.key(key)
            slot.backend.timers.delete(EVENT_TIMERS, 2)
        assert fired == [1]


def test_abandoned_firing_leaves_the_rest(slot: KeyedSlot) -> None:
    """Timers that were not yielded are still there."""
    with slot.batch():
        register(slot, (1, "a"), (2, "a"))
        next(slot.backend.timers.due(EVENT_TIMERS, 6))
    with slot.batch():
        assert due(slot, 6) == [(2, "a")]


def test_whole_range_of_timestamps(slot: KeyedSlot) -> None:
    """From the earliest to the latest 64-bit number; beyond is refused."""
    with slot.batch():
        register(slot, (TIMESTAMP_MS_MIN, "a"), (TIMESTAMP_MS_MAX, "a"))
    with slot.batch():
        assert due(slot, TIMESTAMP_MS_MIN - 1) == []
        assert due(slot, TIMESTAMP_MS_MAX - 1) == [(TIMESTAMP_MS_MIN, "a")]
        assert due(slot, TIMESTAMP_MS_MAX) == [(TIMESTAMP_MS_MAX, "a")]
        for beyond in (TIMESTAMP_MS_MIN - 1, TIMESTAMP_MS_MAX + 1):
            with pytest.raises(InvalidInputError, match="64-bit"):
                register(slot, (beyond, "a"))


def test_unknown_kind(slot: KeyedSlot) -> None:
    """A kind that does not exist is named."""
    with pytest.raises(InvalidInputError, match="unknown kind of timers 'event'"):
        slot.backend.timers.min_timestamp("event")


def test_min_timestamp_counts_the_finished_batch(slot: KeyedSlot) -> None:
    """Between batches the earliest timer is known, so that whoever starts batches knows when."""
    timers = slot.backend.timers
    assert timers.min_timestamp(EVENT_TIMERS) is None
    with slot.batch():
        register(slot, (9, "a"), (5, "b"))
    assert timers.min_timestamp(EVENT_TIMERS) == 5
    slot.backend.apply_pending()
    assert timers.min_timestamp(EVENT_TIMERS) == 5
    assert timers.min_timestamp(PROCESSING_TIMERS) is None
    assert slot.new_backend().timers.min_timestamp(EVENT_TIMERS) == 5


def test_nothing_due_reads_nothing(make_slot: MakeSlot) -> None:
    """Once the fronts are known, batches without due timers do not touch the store."""
    store = CountingStore()
    slot = make_slot(store)
    with slot.batch():
        register(slot, *((100 + number, "abcdefgh"[number % 8]) for number in range(50)))
    with slot.batch():
        assert due(slot, 0) == []
    store.reads = 0
    for now in range(1, 100):
        with slot.batch():
            assert due(slot, now) == []
            assert slot.backend.timers.min_timestamp(EVENT_TIMERS) == 100
    assert store.reads == 0


def test_applied_timers_take_no_memory_each(make_slot: MakeSlot) -> None:
    """Of many stored timers only those read ahead are in memory, and firing them reads the store in chunks."""
    store = CountingStore()
    slot = make_slot(store)
    timers = [(number // 2, "ab"[number % 2]) for number in range(5000)]
    with slot.batch():
        register(slot, *timers)
    with slot.batch():
        assert slot.backend.timers.min_timestamp(EVENT_TIMERS) == 0
        assert slot.backend.entry_counts()[EVENT_TIMERS] <= 2 * 512
        store.reads = 0
        assert due(slot, 10_000) == sorted(timers)
        assert store.reads < 5000 / 20


def test_large_timers_are_read_ahead_in_small_numbers(make_slot: MakeSlot) -> None:
    """Whether they are read from the store or known since they were registered, those of keys of 10 kB do not fill the memory."""
    slot = make_slot(HeapStore())
    timers = [(number, f"a{number:010000d}") for number in range(200)]
    with slot.batch():
        register(slot, *timers)
    for _ in range(2):
        with slot.batch():
            assert slot.backend.timers.min_timestamp(EVENT_TIMERS) == 0
            assert slot.backend.entry_counts()[EVENT_TIMERS] <= 16 * 128
        slot.backend = slot.new_backend()


def test_states_of_keys_whose_timers_are_due_are_read_together(tmp_path: Path) -> None:
    """Not key by key as their timers fire, and not for keys whose timers are not due; also if the timers were read before they were due."""
    slot, store = slot_with_stored_timers(tmp_path)
    slot.begin(1)
    state = slot.backend.value_state(COUNT)
    found: list[int] = []
    for up_to_ms in (9, 19, 139):
        store.reads = 0
        for _, key, ident in slot.backend.timers.due(EVENT_TIMERS, up_to_ms):
            slot.backend.set_current_ident(ident, key)
            found.append(state.value() or 0)
        assert store.reads <= 8
    assert found == list(range(140))
    assert sum(slot.backend.cache_lookups()["count"]) < 2 * 140
    slot.finish()


def test_timers_read_ahead_are_not_read_again(tmp_path: Path) -> None:
    """Neither they nor the states of their keys; also if a batch that registers and deletes timers among them comes in between."""
    slot, store = slot_with_stored_timers(tmp_path)
    state = slot.backend.value_state(COUNT)
    slot.backend.timers.read_ahead(89, 0)
    with slot.batch():
        slot.key(KEYS[50])
        slot.backend.timers.delete(EVENT_TIMERS, 50)
        register(slot, (7, "a000"), (200, "a001"))
        assert due(slot, -1) == []
    slot.backend.apply_pending()
    slot.backend.timers.read_ahead(99, 0)
    slot.begin(2)
    store.reads = 0
    found = []
    for timestamp_ms, key, ident in slot.backend.timers.due(EVENT_TIMERS, 99):
        slot.backend.set_current_ident(ident, key)
        found.append((timestamp_ms, key, state.value()))
    expected = [(number, key, number) for number, key in enumerate(KEYS[:100]) if number != 50]
    assert found == sorted([*expected, (7, "a000", 0)])
    assert store.reads == 0
    slot.finish()
