"""The time to live of window state may change while windows are in flight, whether the function declares it before or after a window ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from statefulspark import (
    ProcessWindowFunction,
    StateTtlConfig,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from statefulspark.testing import KeyedProcessHarness, WindowHarness

WINDOWS = WindowHarness(TumblingEventTimeWindows.of(Time.milliseconds(10)), "key STRING, value BIGINT, at BIGINT", key="key")


class Firings(ProcessWindowFunction):
    """Counts the firings of a window within the time to live."""

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        descriptor = ValueStateDescriptor("firings", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(self._ttl_ms)).build())
        state = context.window_state().get_state(descriptor)
        firings = (state.value() or 0) + 1
        state.update(firings)
        yield key, context.window().max_timestamp() - 9, firings


def made(ttl_ms: int) -> KeyedProcessHarness:
    return WINDOWS.allowed_lateness(1000).process(Firings(ttl_ms), "key STRING, start BIGINT, firings BIGINT", uid="w", event_time="at")


@pytest.mark.parametrize("before_ms", [1_000, 100_000])
@pytest.mark.parametrize("cleans_first", [True, False])
def test_the_new_time_to_live_counts(before_ms: int, cleans_first: bool) -> None:
    """Also if a window of the earlier copy is removed before this copy has declared the state, and again after a retry has replaced the copy."""
    with made(before_ms) as harness:
        harness.set_processing_time(0)
        harness.process_element(("a", 1, 5))
        harness.process_watermark(50)
        assert [row.firings for row in harness.get_output()] == [1]
        snapshot = harness.snapshot()
    restored = made(10_000)
    restored.restore(snapshot)
    with restored:
        if cleans_first:
            restored.process_watermark(2_000)
            assert restored.get_output() == []
            restored.retry()
        at = 3_000
        restored.process_elements([("a", 1, at)])
        restored.process_watermark(at + 100)
        restored.retry()
        restored.set_processing_time(9_000)
        restored.process_elements([("a", 1, at + 1)])
        restored.set_processing_time(20_000)
        restored.process_elements([("a", 1, at + 2)])
        assert [(row.start, row.firings) for row in restored.get_output()] == [(at, 1), (at, 2), (at, 1)]
        restored.process_watermark(at + 2_000)
        assert restored.snapshot().entries == ()
