"""Entries of a map by prefix, while the batch changes them: against a dict that is sorted for each iteration."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from statefulspark.process.windows.window_states import BYTES
from statefulspark.state.api.descriptors import MapStateDescriptor
from statefulspark.state.tables import maps
from statefulspark.state.tables.maps import KeyedMapState
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import KeyedSlot

PREFIXES = (b"", b"a", b"ab", b"\xff", b"\xff\xff", b"z")


def map_of(slot: KeyedSlot) -> KeyedMapState:
    return cast("KeyedMapState", slot.backend.map_state(MapStateDescriptor("m", BYTES, Types.LONG())))


@pytest.mark.parametrize("seed", range(4))
def test_prefixes_of_what_a_batch_changes(slot: KeyedSlot, seed: int) -> None:
    """Puts, removals of stored and of new entries, other keys and aborted batches, between and during iterations."""
    chance = Random(seed)
    state = map_of(slot)
    model: dict[str, dict[bytes, int]] = {"one": {}, "two": {}}

    def user_key() -> bytes:
        return chance.choice(PREFIXES) + bytes(chance.choices(b"ab\xff", k=chance.randint(0, 2)))

    for number in range(12):
        with slot.batch():
            before = {key: dict(entries) for key, entries in model.items()}
            for _ in range(40):
                key = chance.choice(("one", "two"))
                slot.key(key)
                mine, chosen = model[key], user_key()
                if chance.random() < 0.4:
                    state.put(chosen, number)
                    mine[chosen] = number
                elif chance.random() < 0.5:
                    state.remove(chosen)
                    mine.pop(chosen, None)
                else:
                    start = chance.choice(PREFIXES)
                    wanted = [(each, value) for each, value in sorted(mine.items()) if each.startswith(start)]
                    found = list(state.prefix_items(start))
                    assert found == wanted
                    if chance.random() < 0.3:
                        for each, _ in state.prefix_items(start):
                            state.remove(each)
                            del mine[each]
                        assert list(state.prefix_items(start)) == []
            if chance.random() < 0.2:
                slot.backend.abort_batch()
                model = before
                slot.backend.begin_batch(slot.backend.batch + 1, processing_time_ms=slot.now_ms)


def test_many_iterations_of_one_key_sort_once(slot: KeyedSlot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window operator iterates over the entries of each window that it closes, in a batch that changes thousands of others."""
    state, sorts = map_of(slot), []

    def counted(values: Any) -> list[Any]:
        sorts.append(1)
        return sorted(values)

    monkeypatch.setattr(maps, "sorted", counted, raising=False)
    with slot.batch("k"):
        for window in range(500):
            prefix = window.to_bytes(4, "big")
            state.put(prefix + b"x", window)
            assert list(state.prefix_items(prefix)) == [(prefix + b"x", window)]
            state.remove(prefix + b"x")
            assert list(state.prefix_items(prefix)) == []
    assert len(sorts) == 1
