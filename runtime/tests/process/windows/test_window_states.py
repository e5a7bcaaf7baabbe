"""State per window: gone with its window, whoever declared it and whenever."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from statefulspark import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessWindowFunction,
    StateTtlConfig,
    Time,
    Trigger,
    TriggerResult,
    Types,
    ValueStateDescriptor,
    Window,
)
from statefulspark.testing import KeyedProcessHarness, WindowHarness

from .window_functions import ROWS, TEN, EveryKind, Values, stored


def test_every_kind_of_state_is_per_window_and_gone_with_it() -> None:
    """Two windows of a key, one of which fires again for a late row."""
    windows = WindowHarness(TEN, ROWS, key="key").allowed_lateness(100)
    with windows.process(EveryKind(), "key STRING, states STRING", uid="w", event_time="at") as harness:
        harness.process_elements([("a", 1, 5), ("a", 2, 15), ("a", 3, 16)])
        harness.process_watermark(19)
        harness.process_element(("a", 4, 6))
        assert [json.loads(states) for _, states in harness.get_output()] == [
            [1, [1], ["1"], 1, -1, 1],
            [1, [2], ["2"], 2, -2, 2],
            [2, [1, 2], ["1", "2"], 2, -3, 3],
        ]
        harness.process_watermark(109)
        assert "_window.window(TimeWindow, list, map)" in stored(harness)
        harness.process_watermark(1_000)
        assert stored(harness) == ["firings"]


class SometimesStates(ProcessWindowFunction):
    """Declares states only for windows with a large value; with a time to live if asked to."""

    def __init__(self, ttl: bool) -> None:
        self._ttl = ttl

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        if max(each.value for each in elements) > 100:
            rare = MapStateDescriptor("rare", Types.LONG(), Types.LONG())
            if self._ttl:
                rare.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
            state = context.window_state().get_map_state(rare)
            state.put(1, 1)
            state.put(2, 2)
        yield key, "fired"


@pytest.mark.parametrize("ttl", [False, True])
def test_state_that_only_an_earlier_copy_declared_is_removed_too(ttl: bool) -> None:
    """The restored function never meets a window that would make it declare the state, and is not taken for one that renamed it."""
    windows = WindowHarness(TEN, ROWS, key="key").allowed_lateness(100)

    def made() -> KeyedProcessHarness:
        return windows.process(SometimesStates(ttl), "key STRING, what STRING", uid="w", event_time="at")

    with made() as harness:
        harness.process_elements([("a", 101, 5)])
        harness.process_watermark(50)
        snapshot = harness.snapshot()
        assert stored(harness).count("_window.window(TimeWindow, list, rare)") == 2
    restored = made()
    restored.restore(snapshot)
    with restored:
        restored.process_watermark(1_000)
        assert stored(restored) == []


class Bursts(Trigger):
    """Fires at the end, and remembers the values in a list and in a map; merges the list."""

    values = ListStateDescriptor("values", Types.LONG())

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.get_partitioned_state(self.values).add(element.value)
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if sum(ctx.get_partitioned_state(self.values)) >= 10 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.values)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        """Forget to."""


def test_a_trigger_of_ones_own_merges_its_state_and_need_not_clear_it() -> None:
    """Two sessions below the limit become one above it; a third stays below and never fires."""
    windows = WindowHarness(EventTimeSessionWindows.with_gap(Time.milliseconds(10)), ROWS, key="key").trigger(Bursts())
    with windows.apply(Values(), "key STRING, start BIGINT, values ARRAY<BIGINT>", uid="w", event_time="at") as harness:
        harness.process_elements([("a", 4, 0), ("a", 5, 18)])
        harness.process_element(("a", 1, 9))
        harness.process_element(("a", 9, 100))
        harness.process_watermark(1_000)
        assert harness.get_output() == [("a", 0, [4, 5, 1])]
        assert stored(harness) == []


def test_one_more_row_writes_that_row() -> None:
    """A window of 5,000 rows: the changes of one more are a few entries, however long the list."""
    with WindowHarness(TEN, ROWS, key="key").apply(
        Values(), "key STRING, start BIGINT, v ARRAY<BIGINT>", uid="w", event_time="at"
    ) as harness:
        harness.process_elements([("a", number, 5) for number in range(5_000)])
        changed: list[Any] = []
        backend: Any = harness._running.backend  # type: ignore[union-attr]
        backend.begin_batch(1, processing_time_ms=0)
        harness._batch = 0
        backend.abort_batch()
        finish = backend.finish_batch
        backend.finish_batch = lambda changes, **given: finish(changed.extend, **given)
        harness.process_element(("a", 1, 6))
        assert sum(len(key) + len(value or b"") for key, value in changed) < 300
        harness.process_watermark(10)
        assert len(harness.get_output()[0][2]) == 5_001


class Seen(EventTimeTrigger):
    """Remembers that it has seen a row, and never clears it."""

    seen = ValueStateDescriptor("seen", Types.BOOLEAN())

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.get_partitioned_state(self.seen).update(True)
        return super().on_element(element, timestamp, window, ctx)


@pytest.mark.parametrize("restore", [False, True])
def test_state_that_a_trigger_forgets_is_removed(restore: bool) -> None:
    """Of windows that were merged too, and where the restored copy has not declared it."""
    windows = WindowHarness(EventTimeSessionWindows(10), ROWS, key="key").trigger(Seen())

    def made() -> KeyedProcessHarness:
        return windows.apply(Values(), "key STRING, start BIGINT, v ARRAY<BIGINT>", uid="w", event_time="at")

    with made() as harness:
        harness.process_elements([("a", at, at) for at in range(0, 60, 3)])
        snapshot = harness.snapshot()
        assert stored(harness).count("_window.trigger(MergingTimeWindow, list, seen)") == 1
        if not restore:
            harness.process_watermark(1_000)
            assert stored(harness) == []
            return
    restored = made()
    restored.restore(snapshot)
    with restored:
        restored.process_watermark(1_000)
        assert (len(restored.get_output()), stored(restored)) == (1, [])


class Cached(ProcessWindowFunction):
    """Takes the handle of its window state once."""

    state: Any = None

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        if self.state is None:
            self.state = context.window_state().get_state(ValueStateDescriptor("n", Types.LONG()))
        self.state.update((self.state.value() or 0) + 1)
        return ((key, str(self.state.value())),)


def test_a_window_state_whose_handle_is_kept_is_removed_with_each_window() -> None:
    """Each window has a value of its own."""
    windows = WindowHarness(TEN, ROWS, key="key").allowed_lateness(100)
    with windows.process(Cached(), "key STRING, n STRING", uid="w", event_time="at") as harness:
        harness.process_elements([("a", 1, at) for at in range(0, 50, 10)])
        harness.process_watermark(60)
        assert harness.get_output() == [("a", "1")] * 5
        harness.process_watermark(1_000)
        assert stored(harness) == []
