"""Descriptors of states that expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statefulspark.state.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.api.ttl import Builder, StateTtlConfig
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import KeyedSlot

MakeSlot = Callable[..., KeyedSlot]


def ttl(configure: Callable[[Builder], Builder] = lambda builder: builder) -> StateTtlConfig:
    return configure(StateTtlConfig.new_builder(Time.milliseconds(100))).build()


def value_descriptor(config: StateTtlConfig | None) -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor("value", Types.LONG())
    with_ttl(descriptor, config)
    return descriptor


def with_ttl(descriptor: Any, config: StateTtlConfig | None) -> Any:
    assert isinstance(descriptor, StateDescriptor)
    if config is not None:
        descriptor.enable_time_to_live(config)
    return descriptor


def sweep(slot: KeyedSlot) -> None:
    """Commit the finished batch and clean up after it, as a slot does."""
    slot.backend.apply_pending()
    while slot.backend.sweep():
        pass


def declared(slot: KeyedSlot, kind: str, config: StateTtlConfig) -> Any:
    backend = slot.backend
    if kind == "value":
        return backend.value_state(value_descriptor(config))
    if kind == "list":
        return backend.list_state(with_ttl(ListStateDescriptor("list", Types.LONG()), config))
    return backend.map_state(with_ttl(MapStateDescriptor("map", Types.LONG(), Types.LONG()), config))


def write(state: Any, number: int) -> None:
    if hasattr(state, "put"):
        state.put(number, number)
    elif hasattr(state, "add"):
        state.add(number)
    else:
        state.update(number)
