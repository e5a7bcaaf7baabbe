"""Sweep: looks at some stored entries of an expiring state with each batch, so that what nobody reads is removed in the end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.layers import Layers
from statefulspark.state.layout import state_range

_GROUPS_PER_STEP: Final = 16
"""Key groups looked into per batch: a slot may have thousands with nothing in them."""


class Sweep:
    """Walks round and round over the entries of one state, a few at a time.

    Args:
        layers: The backend's.
        state_id: Of the state.
        key_groups: The slot's.
        entries: How many to look at per step, at least 1.
    """

    __slots__ = ("_after", "_entries", "_group", "_key_groups", "_layers", "_state_id")

    def __init__(self, layers: Layers, state_id: int, key_groups: KeyGroupRange, entries: int) -> None:
        self._layers = layers
        self._state_id = state_id
        self._key_groups = key_groups
        self._entries = entries
        self._group = key_groups.first
        self._after = b""

    def step(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the next entries (store key, stored bytes)."""
        left = self._entries
        for _ in range(min(_GROUPS_PER_STEP, self._key_groups.count)):
            first, end = state_range(self._group, self._state_id)
            found = list(islice(self._layers.scan(max(first, self._after), end), left))
            yield from found
            left -= len(found)
            if not left:
                self._after = found[-1][0] + b"\0"
                return
            self._after = b""
            self._group = self._key_groups.first if self._group == self._key_groups.last else self._group + 1
