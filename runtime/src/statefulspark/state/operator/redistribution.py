"""Redistribution: assigns the operator state of the old slots to the new ones. Pure.

At another parallelism, element k of the old lists, joined in slot order, goes to slot (k + state id) mod m. The state id is added so that the
first elements of several short lists do not all go to slot 0. At the same parallelism each slot keeps its own list. Every slot gets all of a union list.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from statefulspark.state.operator.entries import OperatorLists


def redistribute(
    old: Mapping[int, OperatorLists], *, old_slots: int, new_slots: int, unions: Collection[int]
) -> list[dict[int, tuple[bytes, ...]]]:
    """Return the lists of each new slot.

    Args:
        old: Lists by old slot.
        old_slots: The old parallelism.
        new_slots: The new parallelism.
        unions: Ids of the states that are union lists.
    """
    new: list[dict[int, tuple[bytes, ...]]] = [{} for _ in range(new_slots)]
    for state_id in sorted({state_id for lists in old.values() for state_id in lists}):
        parts = [old.get(slot, {}).get(state_id, ()) for slot in range(old_slots)]
        joined = tuple(chain.from_iterable(parts))
        for slot in range(new_slots):
            if state_id in unions:
                new[slot][state_id] = joined
            elif old_slots == new_slots:
                new[slot][state_id] = parts[slot]
            else:
                new[slot][state_id] = joined[(slot - state_id) % new_slots :: new_slots]
    return new
