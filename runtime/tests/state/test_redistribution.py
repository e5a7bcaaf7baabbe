"""Redistribution loses and doubles no element, keeps the order, and gives every slot its share."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from statefulspark.state.operator.redistribution import redistribute

_STATE = 3
_UNION = 4
_SIZES = range(1, 7)


def _old(slots: int, elements: int) -> dict[int, dict[int, tuple[bytes, ...]]]:
    """Lists of unequal lengths; some slots have none."""
    old: dict[int, dict[int, tuple[bytes, ...]]] = {}
    for number in range(elements):
        slot = (number * number) % slots
        for state_id in (_STATE, _UNION):
            lists = old.setdefault(slot, {})
            lists[state_id] = (*lists.get(state_id, ()), b"%d-%d" % (slot, number))
    return old


@pytest.mark.parametrize(("old_slots", "new_slots"), list(product(_SIZES, _SIZES)))
def test_every_element_has_one_place(old_slots: int, new_slots: int) -> None:
    """For each old and new parallelism: nothing is lost or doubled, sizes differ by one at most, and elements keep their order."""
    for elements in (0, 1, 2, 7, 24):
        old = _old(old_slots, elements)
        joined = [element for slot in range(old_slots) for element in old.get(slot, {}).get(_STATE, ())]
        new = redistribute(old, old_slots=old_slots, new_slots=new_slots, unions={_UNION})
        assert len(new) == new_slots
        lists = [part.get(_STATE, ()) for part in new]
        assert Counter(element for each in lists for element in each) == Counter(joined)
        assert all(list(each) == [element for element in joined if element in each] for each in lists)
        if old_slots == new_slots:
            assert lists == [old.get(slot, {}).get(_STATE, ()) for slot in range(old_slots)]
        else:
            assert max(map(len, lists)) - min(map(len, lists)) <= 1
            assert all((place + _STATE) % new_slots == slot for slot, each in enumerate(lists) for place in map(joined.index, each))
        assert all(part.get(_UNION, ()) == tuple(joined) for part in new)


def test_short_lists_do_not_all_go_to_slot_0() -> None:
    """The state id is added, so the only elements of several lists go to different slots."""
    old = {0: dict.fromkeys(range(1, 5), (b"element",))}
    new = redistribute(old, old_slots=1, new_slots=4, unions=())
    assert [sum(map(len, part.values())) for part in new] == [1, 1, 1, 1]


def test_a_union_list_is_in_memory_once() -> None:
    """Every slot gets the same object."""
    new = redistribute({0: {_UNION: (b"a",)}, 1: {_UNION: (b"b",)}}, old_slots=2, new_slots=64, unions={_UNION})
    assert len({id(part[_UNION]) for part in new}) == 1
