"""Descriptors of states that expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statefulspark.state.api.descriptors import (
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
