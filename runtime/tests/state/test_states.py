"""What each state does with values: PyFlink's behaviour, with objects as safe as bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.api.functions import ReduceFunction
from statefulspark.state.api.states import AggregatingState, AppendingState, ListState, MapState, MergingState, ReducingState, ValueState
from statefulspark.state.tables.value import KeyedValueState
from statefulspark.state.types.types import TypeInformation, Types
from statefulspark.testing.keyed_state import STRING_KEYS, KeyedSlot, key_group

from .mean import Mean

COUNT = ValueStateDescriptor("count", Types.LONG())


def test_descriptors_tell_what_they_were_given() -> None:
    """Names, types and functions as PyFlink's descriptors have them; a plain function becomes a ReduceFunction."""
    text, number = Types.STRING(), Types.LONG()
    assert ValueStateDescriptor("s", number).get_name() == "s"
    assert ValueStateDescriptor("s", number).type_info == number
    assert ListStateDescriptor("s", number).type_info == Types.LIST(number)
    assert MapStateDescriptor("s", text, number).type_info == Types.MAP(text, number)
    smaller, mean = Smaller(), Mean()
    assert ReducingStateDescriptor("s", smaller, number).get_reduce_function() is smaller
    assert ReducingStateDescriptor("s", min, number).get_reduce_function().reduce(2, 1) == 1
    assert isinstance(ReducingStateDescriptor("s", min, number).get_reduce_function(), ReduceFunction)
    assert AggregatingStateDescriptor("s", mean, Types.TUPLE([number, number])).get_agg_function() is mean
    assert StateDescriptor("s", number).type_info == number
    for name in ("", "x" * 256):
        with pytest.raises(InvalidInputError, match="1 to 255 bytes"):
            StateDescriptor(name, number)


def test_states_that_take_values_can_be_merged() -> None:
    """List, reducing and aggregating state are merging states, map and value state are not."""
    assert all(issubclass(kind, MergingState) for kind in (ListState, ReducingState, AggregatingState))
    assert not any(issubclass(kind, AppendingState) for kind in (ValueState, MapState))


class Smaller(ReduceFunction[int]):
    def reduce(self, value1: int, value2: int) -> int:
        return min(value1, value2)


class TestStates:
    @pytest.mark.parametrize(
        ("type_", "value"),
        [
            (Types.LIST(Types.LONG()), [1, 2]),
            (Types.PICKLED_BYTE_ARRAY(), [1, 2]),
            (Types.PICKLED_BYTE_ARRAY(), ([1, 2],)),
            (Types.TUPLE([Types.LIST(Types.LONG())]), ([1, 2],)),
            (Types.PRIMITIVE_ARRAY(Types.LONG()), [1, 2]),
        ],
    )
    def test_changing_an_object_changes_nothing_without_update(self, slot: KeyedSlot, type_: TypeInformation, value: Any) -> None:
        """Objects read from state and objects given to it are not the state: only update and put are."""
        state = slot.backend.value_state(ValueStateDescriptor("s", type_))
        entries = slot.backend.map_state(MapStateDescriptor("m", Types.LONG(), type_))

        def innermost(read: Any) -> list[int]:
            return read[0] if isinstance(read, tuple) else read  # type: ignore[no-any-return]  # lists by construction

        value = copy.deepcopy(value)
        slot.begin()
        slot.key("a")
        state.update(value)
        entries.put(1, value)
        innermost(value).append(3)
        for _ in range(2):
            for read in (state.value, lambda: entries.get(1), lambda: next(entries.values())):
                assert innermost(read()) == [1, 2]
                innermost(read()).append(9)
            slot.finish()
            slot.begin()
            slot.key("a")

    def test_float_is_rounded_at_once(self, slot: KeyedSlot) -> None:
        """What a cache gives is what the store would give."""
        state = slot.backend.value_state(ValueStateDescriptor("s", Types.FLOAT()))
        with slot.batch("a"):
            state.update(0.1)
            assert state.value() == 0.10000000149011612

    def test_wrong_type_names_the_state(self, slot: KeyedSlot) -> None:
        """The error names state and uid and shows no value."""
        state = slot.backend.value_state(COUNT)
        elements = slot.backend.list_state(ListStateDescriptor("list", Types.LONG()))
        entries = slot.backend.map_state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))
        wrong: Any = "secret"
        slot.begin()
        slot.key("a")
        accesses: list[tuple[Callable[[], Any], str]] = [
            (lambda: state.update(wrong), "state 'count' of uid 'step'"),
            (lambda: elements.add(wrong), "state 'list' of uid 'step'"),
            (lambda: entries.put(1, wrong), "state 'map' of uid 'step'"),
            (lambda: entries.get(wrong), "map key of state 'map' of uid 'step'"),
        ]
        for access, name in accesses:
            with pytest.raises(InvalidInputError, match=f"^{name}: expected int") as caught:
                access()
            assert "secret" not in str(caught.value)

    def test_number_too_wide_fails_the_batch(self, slot: KeyedSlot) -> None:
        """A LONG beyond 64 bits is noticed at the latest when the batch is encoded, and the batch can be aborted."""
        state = slot.backend.value_state(COUNT)
        slot.begin()
        slot.key("a")
        state.update(1 << 63)
        with pytest.raises(InvalidInputError, match=r"'count'.*does not fit"):
            slot.finish()
        slot.backend.abort_batch()
        with slot.batch("a"):
            assert state.value() is None

    def test_list_gives_a_copy(self, slot: KeyedSlot) -> None:
        """An iterator over a list is not disturbed by later changes."""
        elements = slot.backend.list_state(ListStateDescriptor("list", Types.LONG()))
        with slot.batch("a"):
            elements.add_all([1, 2])
            iterator = elements.get()
            elements.add(3)
            elements.clear()
            assert list(iterator) == [1, 2]
            assert list(elements) == []

    def test_none_cannot_be_added(self, slot: KeyedSlot) -> None:
        """As in Flink, lists and combining states refuse None."""
        elements = slot.backend.list_state(ListStateDescriptor("list", Types.LONG()))
        reducing = slot.backend.reducing_state(ReducingStateDescriptor("min", Smaller(), Types.LONG()))
        aggregating = slot.backend.aggregating_state(AggregatingStateDescriptor("mean", Mean(), Types.PICKLED_BYTE_ARRAY()))
        none: Any = None
        slot.begin()
        slot.key("a")
        for add in (elements.add, reducing.add, aggregating.add):
            with pytest.raises(InvalidInputError, match="None cannot be added"):
                add(none)

    def test_reducing_and_aggregating(self, slot: KeyedSlot) -> None:
        """They combine over batches, start from nothing, and are cleared."""
        reducing = slot.backend.reducing_state(ReducingStateDescriptor("min", Smaller(), Types.LONG()))
        aggregating = slot.backend.aggregating_state(AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()])))
        with slot.batch("a"):
            assert (reducing.get(), aggregating.get()) == (None, None)
        for number in (5, 3, 4):
            with slot.batch("a"):
                reducing.add(number)
                aggregating.add(number)
        with slot.batch("a"):
            assert (reducing.get(), aggregating.get()) == (3, 4.0)
            reducing.clear()
            aggregating.clear()
        with slot.batch("a"):
            assert (reducing.get(), aggregating.get()) == (None, None)

    def test_map_as_a_mapping(self, slot: KeyedSlot) -> None:
        """PyFlink's map state is used like a dict too."""
        entries = slot.backend.map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        with slot.batch("a"):
            entries["x"] = 1
            entries.put_all({"y": 2, "z": 3})
            del entries["z"]
            assert ("x" in entries, "z" in entries, entries["y"], entries["z"]) == (True, False, 2, None)
            assert (list(entries), list(entries.values())) == (["x", "y"], [1, 2])

    def test_map_keys_are_told_apart_by_type(self, slot: KeyedSlot) -> None:
        """Python takes 1, 1.0 and True for the same key; a map of pickled keys does not."""
        entries = slot.backend.map_state(MapStateDescriptor("map", Types.PICKLED_BYTE_ARRAY(), Types.STRING()))
        with slot.batch("a"):
            entries.put(1, "int")
            entries.put(1.0, "float")
            entries.put(True, "bool")
            assert [entries.get(key) for key in (1, 1.0, True)] == ["int", "float", "bool"]


def test_whether_values_of_a_key_group_exist(slot: KeyedSlot) -> None:
    """Known without a look at the store for each key, also after changes that are committed, undone or spilled; keys of an empty group are not read."""

    def may_have(key: str, *, look_again: bool = False) -> bool:
        slot.key(key)
        return state.may_have_entries(look_again=look_again)

    with slot.batch():
        state = cast("KeyedValueState", slot.backend.value_state(COUNT))
        assert [may_have(key) for key in "abc"] == [False, False, False]
        slot.key("a")
        state.update(1)
        assert may_have("ax")
    slot.begin()
    assert [may_have(key) for key in "abc"] == [True, False, False]
    slot.key("b")
    state.update(2)
    slot.backend.abort_batch()
    slot.begin()
    assert [may_have(key) for key in "abc"] == [True, False, False]
    misses = state.misses
    slot.backend.prefetch(slot.backend.idents.of_all([(key_group(key), STRING_KEYS.encode(key)) for key in ("bb", "cc")]))
    assert state.misses == misses
    slot.key("c")
    state.update(3)
    slot.backend._spill()
    assert may_have("cx")
    slot.key("a")
    state.clear()
    slot.finish()
    slot.begin()
    assert [may_have(key) for key in "abc"] == [True, False, True]
    assert [may_have(key, look_again=True) for key in "abc"] == [False, False, True]
    slot.backend.clear_current_key()
    with pytest.raises(InvalidInputError, match="no current key"):
        state.may_have_entries()
    slot.finish()
