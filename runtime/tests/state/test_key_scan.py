"""apply_to_keyed_state visits each key of the slot that has an entry, once, against plain dicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

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
from statefulspark.state.api.functions import AggregateFunction
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.tables import key_scan
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot, key_group


class Sum(AggregateFunction[int, int, int]):
    """Adds numbers."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


DESCRIPTORS: dict[str, StateDescriptor] = {
    "value": ValueStateDescriptor("value", Types.LONG()),
    "text": ValueStateDescriptor("text", Types.STRING()),
    "list": ListStateDescriptor("list", Types.STRING()),
    "map": MapStateDescriptor("map", Types.STRING(), Types.STRING()),
    "sum": ReducingStateDescriptor("sum", lambda a, b: a + b, Types.STRING()),
    "total": AggregatingStateDescriptor("total", Sum(), Types.LONG()),
}
KEYS = [letter + rest for letter in "abz" for rest in ("", "a", "aa", "b", "\u00e4", "longer")]


def read(name: str, state: Any) -> Any:
    """What a state holds, in plain objects; None if nothing."""
    if name in ("value", "text"):
        return state.value()
    if name == "list":
        return list(state) or None
    return (dict(state.items()) or None) if name == "map" else state.get()


def change(name: str, state: Any, number: int, held: Any) -> Any:
    """Change a state, or clear it, and return what it holds then."""
    if number % 3 == 0:
        state.clear()
        return None
    text = str(number) * (number % 7)
    if name == "value":
        state.update(number)
        return number
    if name == "text":
        state.update(text)
        return text
    if name == "list":
        state.add(text)
        return [*(held or []), text]
    if name == "map":
        if number % 5 == 0:
            for key in list(state):
                del state[key]
            return None
        state[text] = text
        return {**(held or {}), text: text}
    added = text if name == "sum" else number
    state.add(added)
    return added if held is None else held + added


@pytest.mark.parametrize("dirty_bytes", [1, 600, 1 << 20])
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_each_key_with_an_entry_is_visited_once(
    store: KeyValueStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dirty_bytes: int
) -> None:
    """In the store, held before it, spilled, or changed in the batch; what the function changes itself is seen by the next visit."""
    monkeypatch.setattr(key_scan, "PIECE_KEYS", 3)
    slot = KeyedSlot(store, tmp_path, BatchBudget(cache_bytes=200, dirty_bytes=dirty_bytes), key_groups=LETTER_GROUPS)
    descriptor, chance, model = DESCRIPTORS[name], Random(len(name) + dirty_bytes), dict[str, Any]()
    state: Any = slot.backend._declared.state(descriptor)
    if name == "list":
        state.short_bytes, state.tail_bytes, state.segment_bytes = 8, 4, 6

    def visit_all(*, changing: bool) -> None:
        seen: list[str] = []

        def visit(key: str, visited: Any) -> None:
            seen.append(key)
            assert visited is state
            assert read(name, visited) == model[key]
            if changing:
                changed = change(name, visited, chance.randrange(1, 30), model[key])
                model.update({key: changed})

        expected = {key for key, held in model.items() if held is not None}
        slot.backend.apply_to_keyed_state(descriptor, visit)
        assert len(seen) == len(expected)
        assert set(seen) == expected
        assert [key_group(key) for key in seen] == sorted(map(key_group, seen))
        for key in [key for key, held in model.items() if held is None]:
            del model[key]

    for batch in range(6):
        slot.begin(hold=batch in (2, 3))
        undone = dict(model)
        visit_all(changing=False)
        for _ in range(chance.randrange(12)):
            key = chance.choice(KEYS)
            slot.key(key)
            changed = change(name, state, chance.randrange(30), model.get(key))
            model[key] = changed
        visit_all(changing=True)
        visit_all(changing=False)
        if batch == 4:
            slot.backend.abort_batch()
            model = undone
            slot.begin()
            visit_all(changing=False)
        slot.finish()


def test_an_expired_entry_is_visited_and_reads_as_empty(make_slot: Callable[..., KeyedSlot]) -> None:
    """As in Flink, as long as it is stored."""
    descriptor = MapStateDescriptor("fading", Types.STRING(), Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(5)).disable_cleanup_in_background().build())
    slot = make_slot(HeapStore())
    with slot.batch("a") as backend:
        backend.map_state(descriptor)["x"] = 1
    slot.now_ms += 10
    with slot.batch("b") as backend:
        backend.map_state(descriptor)["x"] = 2
        seen: dict[str, dict[str, int]] = {}
        backend.apply_to_keyed_state(descriptor, lambda key, state: seen.update({key: dict(state.items())}))
    assert seen == {"a": {}, "b": {"x": 2}}


def test_the_current_key_is_the_visited_one(make_slot: Callable[..., KeyedSlot]) -> None:
    """Other states and timers belong to it; afterwards there is no current key, also after an error, and the next call works."""
    value, other = ValueStateDescriptor("value", Types.LONG()), ValueStateDescriptor("other", Types.STRING())
    slot = make_slot(HeapStore())
    with slot.batch() as backend:
        for key in "ab":
            slot.key(key)
            backend.value_state(value).update(1)
        backend.apply_to_keyed_state(value, lambda key, _: backend.value_state(other).update(key))
        with pytest.raises(InvalidInputError, match="there is no current key"):
            backend.value_state(value).value()
        with pytest.raises(ZeroDivisionError):
            backend.apply_to_keyed_state(value, lambda key, _: key[1 // 0])
        with pytest.raises(InvalidInputError, match="there is no current key"):
            backend.value_state(other).value()
        with pytest.raises(InvalidInputError, match="apply_to_keyed_state: the function that it calls for each key cannot call it again"):
            backend.apply_to_keyed_state(value, lambda *_: backend.apply_to_keyed_state(other, lambda *_: None))
        found: dict[str, str] = {}
        backend.apply_to_keyed_state(other, lambda key, state: found.update({key: state.value()}))
    assert found == {"a": "a", "b": "b"}


def test_what_is_no_descriptor_of_keyed_state_is_refused(make_slot: Callable[..., KeyedSlot]) -> None:
    """The message names what was passed and the remedy."""
    backend: Any = make_slot(HeapStore()).backend
    with pytest.raises(InvalidInputError, match=r"expected the descriptor of a keyed state, got an int. Pass a ValueStateDescriptor"):
        backend.apply_to_keyed_state(5, lambda *_: None)
