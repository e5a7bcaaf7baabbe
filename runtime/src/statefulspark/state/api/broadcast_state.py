"""Broadcast state: a small map per slot, equal in all slots. PyFlink's names.

Broadcast state belongs to the second input of a step, a stream of which every slot gets each row: rules, prices, settings. Rows of that
stream change the map, and rows of the keyed stream read it. It is on the heap, at most 64 MiB per step and slot.

Every method raises InvalidInputError if a key or value is not of the declared type.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from statefulspark.state.api.states import State

K = TypeVar("K")
V = TypeVar("V")


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """Broadcast state as rows of the keyed stream and timers see it. Changing an object that it returns changes nothing.

    Iteration is in the order of the keys' bytes, so it is the same in every slot and after a restore.
    """

    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of ``key``, None when there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Tell whether ``key`` is there."""

    @abstractmethod
    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over keys and values."""

    @abstractmethod
    def keys(self) -> Iterator[K]:
        """Iterate over the keys."""

    @abstractmethod
    def values(self) -> Iterator[V]:
        """Iterate over the values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Tell whether nothing is there."""

    @abstractmethod
    def clear(self) -> None:
        """Remove everything. Raises InvalidInputError outside of ``process_broadcast_element``, as all changes do."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return self.keys()


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """Broadcast state as rows of the broadcast stream see it.

    Each slot changes its own copy, and a slot that restarts or is added gets the copy of another one. So a function must make the same
    changes in every slot: they may depend on the rows of the broadcast stream and on this state, never on keyed state, the number of the slot,
    the clock of the machine or random numbers.

    Entries may be changed while iterating.
    """

    __slots__ = ()

    @abstractmethod
    def put(self, key: K, value: V | None) -> None:
        """Set the value of ``key``; None is a value."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set several values."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove ``key``, if there."""

    def __setitem__(self, key: K, value: V | None) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)
