"""Functions of windows that several tests use."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from statefulspark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    Window,
    WindowFunction,
)
from statefulspark.testing import KeyedProcessHarness

ROWS = "key STRING, value BIGINT, at BIGINT"


TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))


class Total(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return value + accumulator

    def get_result(self, accumulator: int) -> int:
        return -accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class EveryKind(ProcessWindowFunction):
    """Counts firings in each kind of state of the window, and in one of the key."""

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        state = context.window_state()
        value = state.get_state(ValueStateDescriptor("value", Types.LONG()))
        value.update((value.value() or 0) + 1)
        listed = state.get_list_state(ListStateDescriptor("list", Types.LONG()))
        listed.add(len(elements))
        mapped = state.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        mapped.put(str(len(elements)), 1)
        reduced = state.get_reducing_state(ReducingStateDescriptor("reducing", max, Types.LONG()))
        reduced.add(len(elements))
        total = state.get_aggregating_state(AggregatingStateDescriptor("aggregating", Total(), Types.LONG()))
        total.add(len(elements))
        firings = context.global_state().get_state(ValueStateDescriptor("firings", Types.LONG()))
        firings.update((firings.value() or 0) + 1)
        assert (mapped.is_empty(), mapped.contains("x"), mapped.get("x"), sorted(mapped.keys())) == (
            False,
            False,
            None,
            sorted(dict(mapped.items())),
        )
        yield key, json.dumps([value.value(), list(listed), sorted(mapped.keys()), reduced.get(), total.get(), firings.value()])


class Values(WindowFunction):
    def apply(self, key: Any, window: Window, inputs: list[Any]) -> Iterable[Any]:
        assert isinstance(window, TimeWindow)
        return [(key, window.start, [row.value for row in inputs])]


def stored(harness: KeyedProcessHarness) -> list[str]:
    """Names of the states that have entries."""
    snapshot = harness.snapshot()
    names = {state.state_id: state.name for state in snapshot.states}
    return [names[int.from_bytes(key[2:4], "big")] for key, _ in snapshot.entries]
