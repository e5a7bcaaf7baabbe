"""A slot that ends says why to whoever still calls it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from statefulspark.errors import CorruptDataError, FencedError

from .one_slot import Slot


def test_a_slot_with_a_damaged_store_names_the_damage(make_slot: Callable[..., Slot]) -> None:
    """A task may come between the end that the damage brings about and the end of the process."""
    slot = make_slot(0)
    slot.run(0, [1])
    slot.store.damage = CorruptDataError("the state store is damaged", path="store")
    slot.service.stopping.set()
    with pytest.raises(FencedError, match="slot 0 is ending: store: the state store is damaged"):
        slot.run(1, [1])


def test_a_slot_that_was_told_to_stop_says_so(make_slot: Callable[..., Slot]) -> None:
    slot = make_slot(0)
    slot.service.stopping.set()
    with pytest.raises(FencedError, match="slot 0 is ending: it was told to stop"):
        slot.run(0, [1])
