"""Late rows that nobody takes, the end of time, and distances that are no number."""

from __future__ import annotations

from typing import Any

from statefulspark import (
    ContinuousEventTimeTrigger,
    DeltaEvictor,
    GlobalWindows,
    Time,
)
from statefulspark.testing import WindowHarness

from .window_functions import ROWS, TEN, Values


def test_late_rows_without_a_tag_are_counted() -> None:
    """Under Flink's name."""
    with WindowHarness(TEN, ROWS, key="key").reduce(lambda a, _: a, uid="w", event_time="at") as harness:
        harness.process_watermark(100)
        harness.process_elements([("a", 1, 5), ("b", 1, 6), ("b", 1, 106)])
        running: Any = harness._running
        assert running.function.runner.metrics.values()["numLateRecordsDropped"] == 2


def test_a_drain_of_a_global_window_ends() -> None:
    """Its next time to fire would never be the last."""
    windows = WindowHarness(GlobalWindows.create(), ROWS, key="key").trigger(ContinuousEventTimeTrigger.of(Time.hours(1)))
    with windows.reduce(lambda a, b: (a.key, a.value + b.value, b.at), uid="w", event_time="at") as harness:
        harness.process_elements([("a", 1, 0), ("a", 2, 1)])
        harness.process_watermark((1 << 63) - 1)
        assert [row.value for row in harness.get_output()][-1] == 3


def test_a_distance_that_is_no_number_evicts_nothing() -> None:
    """As in Flink, which evicts what is at the threshold or beyond it."""
    windows = WindowHarness(TEN, ROWS, key="key").evictor(DeltaEvictor.of(1.0, lambda _, __: float("nan")))
    with windows.apply(Values(), "key STRING, start BIGINT, v ARRAY<BIGINT>", uid="w", event_time="at") as harness:
        harness.process_elements([("a", 1, 1), ("a", 2, 2)])
        harness.process_watermark(20)
        assert harness.get_output() == [("a", 0, [1, 2])]
