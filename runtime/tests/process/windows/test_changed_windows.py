"""Windows of another kind, size or lateness than those in flight."""

from __future__ import annotations

from typing import Any

import pytest

from statefulspark import (
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    GlobalWindows,
    OutputTag,
)
from statefulspark.errors import NotRestorableError
from statefulspark.testing import KeyedProcessHarness, WindowHarness

from .window_functions import ROWS, TEN, Values, stored


@pytest.mark.parametrize("other", [EventTimeSessionWindows(10), GlobalWindows.create()])
def test_state_of_one_kind_of_windows_is_not_read_as_anothers(other: Any) -> None:
    """The job is refused, as for any state that would start empty."""
    with WindowHarness(TEN, ROWS, key="key").reduce(lambda a, _: a, uid="w", event_time="at") as harness:
        harness.process_element(("a", 1, 5))
        snapshot = harness.snapshot()
    changed = WindowHarness(other, ROWS, key="key").trigger(CountTrigger.of(2)).reduce(lambda a, _: a, uid="w", event_time="at")
    changed.restore(snapshot)
    with pytest.raises(NotRestorableError, match=r"_window\(TimeWindow, reduced\)"):
        changed.open()


def test_lateness_may_change_while_windows_are_in_flight() -> None:
    """Shorter or longer: windows that were registered with the old one are cleaned up with the new one."""
    late = OutputTag("late", ROWS)
    for before, after in [(0, 50), (50, 0)]:
        windows = WindowHarness(TEN, ROWS, key="key").side_output_late_data(late)
        with windows.allowed_lateness(before).reduce(lambda a, _: a, uid="w", event_time="at") as harness:
            harness.process_element(("a", 1, 5))
            snapshot = harness.snapshot()
        restored = windows.allowed_lateness(after).reduce(lambda a, _: a, uid="w", event_time="at")
        restored.restore(snapshot)
        with restored:
            restored.process_watermark(30)
            restored.process_element(("a", 2, 6))
            assert len(restored.get_output()) == (2 if after else 1)
            assert len(restored.get_side_output(late)) == (0 if after else 1)
            restored.process_watermark(1_000)
            assert stored(restored) == []


def test_sessions_that_end_because_the_lateness_was_reduced_leave_nothing() -> None:
    """A row within the gap of such a session begins a new one, and a late row finds nothing to return to."""
    late = OutputTag("late", ROWS)
    windows = WindowHarness(EventTimeSessionWindows(100), ROWS, key="key").side_output_late_data(late)

    def made(lateness: int) -> KeyedProcessHarness:
        return windows.allowed_lateness(lateness).apply(Values(), "key STRING, start BIGINT, v ARRAY<BIGINT>", uid="w", event_time="at")

    with made(3_600_000) as harness:
        harness.process_element(("a", 1, 0))
        harness.process_watermark(120)
        snapshot = harness.snapshot()
    restored = made(0)
    restored.restore(snapshot)
    with restored:
        restored.process_element(("a", 2, 50))
        restored.process_element(("a", 3, -200))
        restored.process_watermark(4_000_000)
        assert restored.get_output() == [("a", 50, [2])]
        assert [row.value for row in restored.get_side_output(late)] == [3]
        assert stored(restored) == []


def test_another_size_of_count_windows_is_refused() -> None:
    """The ids of windows would mean other rows."""

    def made(size: int) -> KeyedProcessHarness:
        return WindowHarness(CountTumblingWindowAssigner(size), ROWS, key="key").reduce(lambda a, _: a, uid="w")

    with made(10) as harness:
        harness.process_element(("a", 1, 1))
        snapshot = harness.snapshot()
    changed = made(3)
    changed.restore(snapshot)
    with pytest.raises(NotRestorableError, match="CountWindow 10"):
        changed.open()


def test_state_of_another_kind_of_windows_that_is_left_behind_is_not_read() -> None:
    """With allowNonRestoredState the windows, timers and states of triggers start empty."""
    with WindowHarness(TEN, ROWS, key="key").trigger(CountTrigger.of(3)).reduce(lambda a, _: a, uid="w", event_time="at") as harness:
        harness.process_elements([("a", 1, 5), ("a", 1, 5)])
        snapshot = harness.snapshot()
    changed = (
        WindowHarness(TEN, ROWS, key="key")
        .trigger(CountTrigger.of(3))
        .apply(Values(), "key STRING, start BIGINT, v ARRAY<BIGINT>", uid="w", event_time="at")
    )
    changed.restore(snapshot, allow_non_restored_state=True)
    with changed:
        changed.process_elements([("a", 2, 5), ("a", 3, 5)])
        assert changed.get_output() == []
        changed.process_element(("a", 4, 5))
        assert changed.get_output() == [("a", 0, [2, 3, 4])]
