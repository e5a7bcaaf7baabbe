"""The state objects that a function works with. PyFlink's names; each operates on the current key.

Every method raises InvalidInputError outside of ``process_element`` and ``on_timer``, where there is no current key, and if a value
is not of the declared type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Base class of all states."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove the state of the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    __slots__ = ()

    @abstractmethod
    def value(self) -> T | None:
        """Return the value, None when there is none. Changing the returned object changes nothing until `update`."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Replace the value; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """A state that takes values in and gives something made of them."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT | None:
        """Return what was made of the added values."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value, which may not be None."""


class MergingState(AppendingState[IN, OUT]):
    """A state of which two can be merged into one that holds what was added to both."""

    __slots__ = ()


class ReducingState(MergingState[T, T]):
    """One value per key, combined from all added ones."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> T | None:
        """Return the combined value, None when nothing was added."""


class AggregatingState(MergingState[IN, OUT]):
    """One accumulator per key, from which a result is made."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the result, None when nothing was added."""


class ListState(MergingState[T, Iterable[T]]):
    """A list per key."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> Iterator[T]:
        """Return an iterator over the elements; it gives copies and is not disturbed by later changes."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Add several elements."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace all elements; no elements clear the state."""

    def __iter__(self) -> Iterator[T]:
        return self.get()


class MapState(State, Generic[K, V]):
    """A map per key. Iteration is in the order of the keys' bytes; entries may be changed while iterating."""

    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of ``key``, None when there is none."""

    @abstractmethod
    def put(self, key: K, value: V | None) -> None:
        """Set the value of ``key``; None is a value."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set several values."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove ``key``, if there."""

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

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V | None) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return self.keys()
