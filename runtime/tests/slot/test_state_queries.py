"""What a slot answers of its state: what is committed, while batches run, are held, undone and written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from statefulspark.errors import FencedError, InvalidInputError, UnavailableError
from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.rpc.messages.slot_control import Undo
from statefulspark.rpc.messages.state_queries import ReadState, StateEntries
from statefulspark.state.api.descriptors import MapStateDescriptor, ValueStateDescriptor
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import prefix_end, store_key
from statefulspark.state.types.types import Types

from .one_slot import UID, Slot

_GROUP = 7
"""`one_slot` gives every row a hash of this key group."""


def read(slot: Slot, key: int, *, expected: int, name: str = "count", entries: int = 100, size_bytes: int = 1 << 20) -> StateEntries:
    info = next(state for state in slot.coordinator.registry.states() if state.name == name)
    first = store_key(_GROUP, info.state_id, KeyCodec((Types.LONG(),)).encode(key))
    return slot.service.read_state(
        ReadState(
            epoch=1,
            uid=UID,
            expected=expected,
            first=first,
            end=prefix_end(first) if info.kind == "map" else None,
            entries_max=entries,
            bytes_max=size_bytes,
        )
    )


def count(slot: Slot, key: int, *, expected: int) -> int:
    entries = read(slot, key, expected=expected).entries
    return int.from_bytes((entries[0].value or b"")[1:], "big") if entries else 0


class Gated(KeyedProcessFunction):
    """Counts rows per key; waits in the middle of a batch, between two changes of the key."""

    inside = threading.Event()
    go_on = threading.Event()

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        counted = (self.count.value() or 0) + 1
        self.count.update(counted)
        if value.key == 99:
            Gated.inside.set()
            assert Gated.go_on.wait(30)
        yield value.key, counted


@pytest.mark.parametrize("dirty_bytes", [1 << 20, 1])
def test_a_batch_is_seen_once_it_is_committed(make_slot: Callable[..., Slot], dirty_bytes: int) -> None:
    """It has finished and is durable, but only the driver knows that it is committed; then the idle slot shows it. Spilled changes as well."""
    slot = make_slot(dirty_bytes)
    slot.run(0, [1, 1, 2])
    assert [count(slot, key, expected=-1) for key in (1, 2, 3)] == [0, 0, 0]
    assert [count(slot, key, expected=0) for key in (1, 2, 3)] == [2, 1, 0]
    slot.run(1, [1])
    assert count(slot, 1, expected=0) == 2
    assert count(slot, 1, expected=1) == 3


@pytest.mark.parametrize("dirty_bytes", [1 << 20, 1])
def test_a_running_batch_is_not_seen(make_slot: Callable[..., Slot], dirty_bytes: int) -> None:
    """While it runs, the answer is the state before it, at once."""
    Gated.inside.clear()
    Gated.go_on.clear()
    slot = make_slot(dirty_bytes, Gated())
    slot.run(0, [1])
    with ThreadPoolExecutor() as pool:
        running = pool.submit(slot.run, 1, [1, 1, 99, 1])
        assert Gated.inside.wait(30)
        assert count(slot, 1, expected=0) == 1
        Gated.go_on.set()
        running.result(30)
    assert count(slot, 1, expected=0) == 1
    assert count(slot, 1, expected=1) == 4


@pytest.mark.parametrize("dirty_bytes", [1 << 20, 1])
def test_what_is_held_over_a_snapshot_is_seen_when_it_ends(make_slot: Callable[..., Slot], dirty_bytes: int) -> None:
    """While the content of the snapshot is being fixed, queries wait; then they see what is held, which no batch has written yet."""
    slot = make_slot(dirty_bytes)
    slot.run(0, [1])
    slot.begin_snapshot(0)
    slot.run(1, [1, 1])
    slot.run(2, [1])
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(count, slot, 1, expected=1)
        assert not answer.done()
        slot.end_snapshot()
        assert answer.result(30) == 3
    assert slot.service.keyed_steps[UID].backend._layers.holding
    assert count(slot, 1, expected=2) == 4


def test_an_undone_batch_is_never_seen(make_slot: Callable[..., Slot]) -> None:
    """The changelogs of another attempt count: until the slot has them, it says that it is behind, and does not wait."""
    slot = make_slot(1 << 20)
    slot.run(0, [1])
    slot.run(1, [1, 1])
    slot.service.undo(Undo(epoch=1, batch=1))
    with pytest.raises(UnavailableError, match="has not applied batch 1"):
        count(slot, 1, expected=1)
    assert count(slot, 1, expected=0) == 1


class Pages(KeyedProcessFunction):
    """Adds entries to a map: as many as the key says, of 100 bytes."""

    def open(self, runtime_context: Any) -> None:
        self.pages = runtime_context.get_map_state(MapStateDescriptor("pages", Types.LONG(), Types.STRING()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        for number in range(value.key):
            self.pages.put(number, "x" * 99)


def test_answers_are_bounded(make_slot: Callable[..., Slot]) -> None:
    """In entries, in bytes and in time; what is left out is said, and a value that is too large is named with its size."""
    slot = make_slot(1 << 20, Pages())
    slot.run(0, [50, 3])
    every = read(slot, 50, expected=0, name="pages")
    assert (len(every.entries), every.more) == (50, False)
    some = read(slot, 50, expected=0, name="pages", entries=50)
    assert (some.entries, some.more) == (every.entries, False)
    some = read(slot, 50, expected=0, name="pages", entries=7)
    assert (some.entries, some.more) == (every.entries[:7], True)
    some = read(slot, 50, expected=0, name="pages", size_bytes=350)
    assert (some.entries, some.more) == (every.entries[:3], True)
    small = read(slot, 50, expected=0, name="pages", size_bytes=50)
    assert ([(each.value, each.size_bytes) for each in small.entries], small.more) == ([(None, 100)], True)
    slot.service._queries._clock = iter(range(1000)).__next__  # every look at the clock is a second later
    slow = read(slot, 50, expected=0, name="pages")
    assert (slow.entries, slow.more) == (every.entries[:1], True)


def test_queries_are_few_at_a_time(make_slot: Callable[..., Slot]) -> None:
    """Those that wait for a slot would take the threads that serve batches."""
    slot = make_slot(1 << 20)
    slot.run(0, [1])
    with ThreadPoolExecutor(4) as pool, slot.service._gate.turn(can_hold=False):
        waiting = [pool.submit(count, slot, 1, expected=-1) for _ in range(4)]
        while slot.service._queries._places._value:
            threading.Event().wait(0.001)
        with pytest.raises(UnavailableError, match="4 state queries already"):
            count(slot, 1, expected=-1)
    assert {each.exception() or each.result() for each in waiting} <= {0}


def test_another_incarnation_or_step_is_refused(make_slot: Callable[..., Slot]) -> None:
    """By its epoch or its uid."""
    slot = make_slot(1 << 20)
    request = ReadState(epoch=1, uid="other", expected=0, first=b"", end=None, entries_max=1, bytes_max=1)
    with pytest.raises(InvalidInputError, match="'other'"):
        slot.service.read_state(request)
    with pytest.raises(FencedError):
        slot.service.read_state(ReadState(epoch=2, uid=UID, expected=0, first=b"", end=None, entries_max=1, bytes_max=1))
