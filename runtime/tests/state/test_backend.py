"""The life of a batch: what is committed, dropped, fenced and refused, and that states behave as PyFlink's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from statefulspark.errors import FencedError, InvalidInputError, NotRestorableError, UnavailableError
from statefulspark.state.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.encoding.layout import store_key
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.base import Change
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import KeyedSlot, key_group

MakeSlot = Callable[..., KeyedSlot]
COUNT = ValueStateDescriptor("count", Types.LONG())


class FailingStore(HeapStore):
    """Takes so many more changes, then its disk is full."""

    room: int | None = None

    def write(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if self.room is not None:
                if not self.room:
                    raise UnavailableError("the disk is full")
                self.room -= 1
            super().write([change])


class TestLife:
    def test_changes_reach_the_store_with_the_next_batch(self, slot: KeyedSlot) -> None:
        """A finished batch is pending until the next one begins, and is passed on as it is then applied."""
        state = slot.backend.value_state(COUNT)
        with slot.batch("a"):
            state.update(7)
        assert slot.entries() == {}
        slot.begin()
        state_id = slot.registry.register("step", "count", "value", {"key_type": [{"type": "STRING"}], "type": {"type": "LONG"}}).state_id
        assert slot.entries() == dict(slot.changes) == {store_key(key_group("a"), state_id, b"a"): b"\x01" + (7).to_bytes(8, "big")}

    def test_same_batch_again_drops_the_first_attempt(self, slot: KeyedSlot) -> None:
        """A retry starts from what the batch before left."""
        state = slot.backend.value_state(COUNT)
        with slot.batch("a"):
            state.update(1)
        with slot.batch("a"):
            state.update(2)
        assert slot.backend.batch == 1
        slot.begin(1)
        assert slot.backend.batch == 0
        slot.key("a")
        assert state.value() == 1

    def test_batches_before_are_fenced(self, slot: KeyedSlot) -> None:
        """A batch that is part of the store cannot run again, and trying does no harm to the running one."""
        state = slot.backend.value_state(COUNT)
        for number in range(3):
            with slot.batch("a"):
                state.update(number)
        with pytest.raises(FencedError, match="batch 1"):
            slot.begin(1)
        slot.backend.apply_pending()
        with pytest.raises(FencedError, match="batch 2"):
            slot.begin(2)
        slot.begin(3)
        slot.key("a")
        state.update(5)
        with pytest.raises(FencedError):
            slot.begin(2)
        assert state.value() == 5

    def test_batch_after_restore(self, slot: KeyedSlot) -> None:
        """Whoever restores the store says at which batch it stands."""
        slot.backend.batch = 41
        with pytest.raises(FencedError):
            slot.begin(41)
        slot.begin(42)

    def test_first_batch_cannot_be_negative(self, slot: KeyedSlot) -> None:
        """Batches count from 0."""
        with pytest.raises(FencedError):
            slot.begin(-1)

    def test_failed_hand_over_can_be_aborted(self, slot: KeyedSlot) -> None:
        """When the changelog fails the batch is still running, and aborting it leaves nothing."""
        state = slot.backend.value_state(COUNT)

        def fail(_changes: Iterable[Change]) -> None:
            raise UnavailableError("no storage")

        slot.begin()
        slot.key("a")
        state.update(1)
        with pytest.raises(UnavailableError):
            slot.backend.finish_batch(fail)
        slot.backend.abort_batch()
        with slot.batch("a"):
            assert state.value() is None
        assert slot.changes == []

    def test_apply_is_repeated_after_a_full_disk(self, make_slot: MakeSlot) -> None:
        """Writing that stopped half-way is repeated as a whole; the batch can no longer be dropped."""
        store = FailingStore()
        slot = make_slot(store)
        state = slot.backend.value_state(COUNT)
        with slot.batch():
            for key in "abc":
                slot.key(key)
                state.update(1)
        store.room = 2
        with pytest.raises(UnavailableError):
            slot.backend.apply_pending()
        with pytest.raises(FencedError):
            slot.begin(0)
        store.room = None
        slot.begin(1)
        assert slot.entries() == dict(slot.changes)
        assert len(slot.entries()) == 3

    def test_held_changes_survive_a_full_disk(self, make_slot: MakeSlot) -> None:
        """What was held during a snapshot is written with the next batch that may; half-written, it is written again as a whole."""
        store = FailingStore()
        slot = make_slot(store)
        state = slot.backend.value_state(COUNT)
        oracle: dict[str, int] = {}
        for number in range(3):
            slot.begin(hold=number > 0)
            for key in "abc":
                slot.key(key)
                oracle[key] = (state.value() or 0) + ord(key) + number
                state.update(oracle[key])
            slot.finish()
        assert slot.entries() == {}, "all of it was held"
        store.room = 4
        with pytest.raises(UnavailableError):
            slot.begin()
        with pytest.raises(FencedError):
            slot.begin(2)
        store.room = None
        slot.begin(hold=False)
        assert sorted(slot.entries().values()) == sorted(b"\x01" + number.to_bytes(8, "big") for number in oracle.values())

    def test_finish_needs_a_batch(self, slot: KeyedSlot) -> None:
        """Nothing can be finished before it begins; aborting nothing is fine."""
        slot.backend.abort_batch()
        with pytest.raises(InvalidInputError, match="no batch has begun"):
            slot.finish()

    def test_nothing_changed_nothing_written(self, slot: KeyedSlot) -> None:
        """Reading makes no changes, nor does writing and clearing what never was stored."""
        value, entries = slot.backend.value_state(COUNT), slot.backend.map_state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
        with slot.batch("a"):
            assert value.value() is None
            assert entries.get(1) is None
            value.update(1)
            value.clear()
            entries.put(1, 1)
            entries.remove(1)
            list(slot.backend.timers.due(EVENT_TIMERS, 0))
            slot.backend.timers.register(EVENT_TIMERS, 5)
            slot.backend.timers.delete(EVENT_TIMERS, 5)
        assert slot.changes == []

    def test_prefetch_reads_once(self, make_slot: MakeSlot) -> None:
        """After a prefetch reading the keys does not touch the store."""
        slot = make_slot()
        state = slot.backend.value_state(COUNT)
        with slot.batch():
            for key in "abc":
                slot.key(key)
                state.update(ord(key))
        slot.backend.apply_pending()
        slot.backend = slot.new_backend()
        state = slot.backend.value_state(COUNT)
        slot.begin(1)
        slot.backend.prefetch(slot.backend.idents.of_all([(key_group(key), key.encode()) for key in "abcd"]))
        slot.store.close()
        seen = []
        for key in "abcd":
            slot.key(key)
            seen.append(state.value())
        assert seen == [97, 98, 99, None]

    def test_prefetch_stays_within_the_cache(self, make_slot: MakeSlot) -> None:
        """However large the values of a chunk's keys are, reading ahead takes no more than the cache may hold; the rest is read in turn."""
        large = ValueStateDescriptor("large", Types.STRING())
        slot = make_slot(cache_bytes=1 << 20)
        state = slot.backend.value_state(large)
        keys = [f"{letter}{number}" for letter in "abcd" for number in range(50)]
        with slot.batch():
            for key in keys:
                slot.key(key)
                state.update("x" * 10_000)
        slot.backend.apply_pending()
        slot.backend = slot.new_backend()
        state = slot.backend.value_state(large)
        slot.begin(1)
        wanted = slot.backend.idents.of_all([(key_group(key), key.encode()) for key in keys])
        at, calls = 0, 0
        while at < len(keys):
            read = slot.backend.prefetch(wanted[at:])
            assert read > 0
            assert slot.backend.entry_counts()["large"] * 10_000 <= 1 << 20
            for key in keys[at : at + read]:
                slot.key(key)
                assert state.value() == "x" * 10_000
            at, calls = at + read, calls + 1
        assert 5 < calls < 50

    def test_entry_counts(self, slot: KeyedSlot) -> None:
        """Metrics see how many entries of each state are in memory."""
        state = slot.backend.value_state(COUNT)
        with slot.batch("a"):
            state.update(1)
            slot.backend.timers.register(EVENT_TIMERS, 5)
        assert slot.backend.entry_counts() == {"count": 1, EVENT_TIMERS: 1, PROCESSING_TIMERS: 0}


class TestKeyContext:
    def test_state_needs_a_current_key(self, slot: KeyedSlot) -> None:
        """Outside of a key every access is refused, also after a batch with keys."""
        backend = slot.backend
        value, elements = backend.value_state(COUNT), backend.list_state(ListStateDescriptor("list", Types.LONG()))
        entries = backend.map_state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))
        with slot.batch("a"):
            value.update(1)
        slot.begin()
        accesses: list[Callable[[], Any]] = [
            value.value,
            lambda: value.update(1),
            lambda: value.update(None),
            value.clear,
            elements.get,
            lambda: elements.add(1),
            lambda: elements.update([1]),
            elements.clear,
            lambda: entries.get(1),
            lambda: entries.put(1, 1),
            lambda: entries.contains(1),
            entries.items,
            entries.clear,
            entries.is_empty,
            lambda: backend.timers.register(EVENT_TIMERS, 1),
            lambda: backend.timers.delete(EVENT_TIMERS, 1),
        ]
        for access in accesses:
            with pytest.raises(InvalidInputError, match="there is no current key"):
                access()

    def test_key_group_of_another_slot(self, slot: KeyedSlot) -> None:
        """A key of a key group that this slot does not own is refused."""
        slot.begin()
        with pytest.raises(InvalidInputError, match="key group 5"):
            slot.backend.set_current_key(5, "a", b"a")

    def test_steps_do_not_see_each_other(self, slot: KeyedSlot) -> None:
        """Two steps share the store and may use the same names and keys."""
        other = slot.new_backend("other")
        mine, theirs = slot.backend.value_state(COUNT), other.value_state(COUNT)
        with slot.batch("a"):
            mine.update(1)
        slot.backend.apply_pending()
        other.begin_batch(0, processing_time_ms=0)
        other.set_current_key(key_group("a"), "a", b"a")
        assert theirs.value() is None


class TestDeclarations:
    def test_same_name_gives_the_same_object(self, slot: KeyedSlot) -> None:
        """Declaring a state twice is fine, as PyFlink users do."""
        assert slot.backend.value_state(COUNT) is slot.backend.value_state(ValueStateDescriptor("count", Types.LONG()))

    def test_same_name_with_another_type(self, slot: KeyedSlot) -> None:
        """A name cannot be two things in one step."""
        slot.backend.value_state(COUNT)
        with pytest.raises(InvalidInputError, match=r"'count'.*value of Types.LONG\(\) before"):
            slot.backend.value_state(ValueStateDescriptor("count", Types.INT()))
        with pytest.raises(InvalidInputError):
            slot.backend.list_state(ListStateDescriptor("count", Types.LONG()))

    @pytest.mark.parametrize("name", ["", "x" * 256, EVENT_TIMERS])
    def test_unfit_names(self, slot: KeyedSlot, name: str) -> None:
        """Names are 1 to 255 bytes and not those of the timers."""
        with pytest.raises(InvalidInputError):
            slot.backend.value_state(ValueStateDescriptor(name, Types.LONG()))

    @pytest.mark.parametrize(
        ("descriptor", "difference"),
        [
            (ValueStateDescriptor("s", Types.INT()), r"LONG +INT +narrower"),
            (ListStateDescriptor("s", Types.LONG()), "stored as value, but the job declares list"),
        ],
    )
    def test_restored_state_of_another_kind(self, make_slot: MakeSlot, descriptor: Any, difference: str) -> None:
        """Stored state is not handed to code that would misread it."""
        slot = make_slot()
        slot.backend.value_state(ValueStateDescriptor("s", Types.LONG()))
        restored = StateRegistry(slot.registry.states())
        again = KeyedSlot(slot.store, slot.directory, slot.budget, restored)
        methods: dict[str, Callable[[Any], Any]] = {"value": again.backend.value_state, "list": again.backend.list_state}
        with pytest.raises(NotRestorableError, match=difference):
            methods[descriptor.kind](descriptor)

    def test_the_length_of_ttl_takes_effect(self, make_slot: MakeSlot) -> None:
        """It is written down as the code says, and is no new schema."""

        def declared(ttl_ms: int, registry: StateRegistry) -> None:
            descriptor = ValueStateDescriptor("s", Types.LONG())
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).build())
            KeyedSlot(slot.store, slot.directory, slot.budget, registry).backend.value_state(descriptor)

        slot = make_slot()
        declared(5, slot.registry)
        declared(6, slot.registry)
        assert [(state.ttl_ms, state.schemas) for state in slot.registry.states() if state.name == "s"] == [(6, ())]

    def test_registry_continues_numbers(self) -> None:
        """State ids of a checkpoint stay, new states get new ones."""
        description: dict[str, Any] = {"key_type": [], "type": {}, "ttl_ms": None}
        registry = StateRegistry()
        first = registry.register("u", "a", "value", description)
        again = StateRegistry(registry.states())
        assert again.register("u", "a", "value", description) == first
        assert again.register("v", "a", "value", description).state_id == first.state_id + 1

    def test_wrong_arguments_of_descriptors(self) -> None:
        """Forgetting the type, or giving something else as a function, is told when the descriptor is made."""
        not_a_type: Any = "LONG"
        not_a_function: Any = 5
        with pytest.raises(InvalidInputError, match=r"Use Types, e.g. Types.LONG\(\)"):
            ValueStateDescriptor("s", not_a_type)
        with pytest.raises(InvalidInputError, match="ReduceFunction"):
            ReducingStateDescriptor("s", not_a_function, Types.LONG())
        with pytest.raises(InvalidInputError, match="AggregateFunction"):
            AggregatingStateDescriptor("s", not_a_function, Types.LONG())
