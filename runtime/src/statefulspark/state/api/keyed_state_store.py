"""KeyedStateStore: where functions get their keyed state. PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statefulspark.state.api.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from statefulspark.state.api.states import AggregatingState, ListState, MapState, ReducingState, ValueState
    from statefulspark.state.types.type_variables import IN, OUT, K, T, V

__all__ = ["KeyedStateStore"]


class KeyedStateStore(ABC):
    """Gives access to keyed state. Every method may be called several times with equal descriptors and gives the same state.

    Every method raises InvalidInputError if the step has a state of this name with another kind, type or time to live, and
    NotRestorableError if state of this name was stored with another kind or type.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Return the handle of a single value per key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the handle of a list per key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Return the handle of a map per key, whose entries are read and written one by one."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Return the handle of a value per key into which added values are reduced."""

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor[IN, Any, OUT]) -> AggregatingState[IN, OUT]:
        """Return the handle of an accumulator per key into which added values are aggregated."""
