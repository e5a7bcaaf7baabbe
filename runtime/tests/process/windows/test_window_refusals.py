"""What is refused or warned of, before a job starts or when a function returns it, each with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from statefulspark import (
    CheckpointedFunction,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    Time,
    TimestampedValue,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
)
from statefulspark.errors import InvalidInputError, UserFunctionError
from statefulspark.testing import KeyedProcessHarness, WindowHarness

from .window_functions import ROWS, TEN, EveryKind, Total, Values


class Adds(Evictor):
    def evict_before(self, elements: list[TimestampedValue], size: int, window: Window, evictor_context: Evictor.EvictorContext) -> None:
        elements.append(TimestampedValue(elements[0].value, 1))

    def evict_after(self, elements: list[TimestampedValue], size: int, window: Window, evictor_context: Evictor.EvictorContext) -> None: ...


class Clears(Adds):
    """Replaces an element by what is none, before the window function sees it."""

    def evict_before(self, elements: list[Any], size: int, window: Window, evictor_context: Evictor.EvictorContext) -> None:
        elements[0] = None


class Number(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Any:
        return 5


class Later(ProcessWindowFunction):
    async def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Any:  # type: ignore[override]  # the mistake
        return []


class Text(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Any:
        return "text"


class SessionState(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        context.window_state()
        return ()


@pytest.mark.parametrize(
    ("windows", "function", "message"),
    [
        (WindowHarness(TEN, ROWS, key="key").evictor(Adds()), EveryKind(), "the evictor added elements"),
        (WindowHarness(TEN, ROWS, key="key").evictor(Clears()), EveryKind(), "the evictor added elements"),
        (WindowHarness(TEN, ROWS, key="key"), Text(), "process of the step 'harness' returned a str"),
        (WindowHarness(TEN, ROWS, key="key"), Number(), "process of the step 'harness' returned an int. Yield output rows"),
        (WindowHarness(TEN, ROWS, key="key"), Later(), "process of the step 'harness' returned a coroutine. Define it with def"),
        (WindowHarness(EventTimeSessionWindows(10), ROWS, key="key"), SessionState(), "session windows merge and have no state"),
    ],
)
def test_mistakes_in_functions_are_named(windows: WindowHarness, function: ProcessWindowFunction, message: str) -> None:
    """When the window fires; the batch fails."""
    with windows.process(function, "key STRING, states STRING", uid="w", event_time="at") as harness:
        harness.process_element(("a", 1, 5))
        with pytest.raises((InvalidInputError, UserFunctionError), match=message):
            harness.process_watermark(1_000)


def test_a_row_without_event_time_is_named() -> None:
    """With the remedy."""
    with (
        WindowHarness(TEN, ROWS, key="key").reduce(lambda a, _: a, uid="w", event_time="at") as harness,
        pytest.raises(InvalidInputError, match=r"uid 'harness': .*a row has no event time.*Filter such rows"),
    ):
        harness.process_element(("a", 1, None))


def sliding_count() -> Any:
    return WindowHarness(TEN, ROWS, key="key").trigger(CountTrigger.of(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TumblingEventTimeWindows.of(Time.milliseconds(0)), "TumblingEventTimeWindows has a size of 0 ms. .*at least 1 ms"),
        (lambda: SlidingEventTimeWindows.of(Time.seconds(1), Time.seconds(0)), "has a slide of 0 ms"),
        (lambda: TumblingEventTimeWindows.of(Time.seconds(1), Time.seconds(1)), "has an offset of 1000 ms"),
        (lambda: TumblingEventTimeWindows.of(Time.seconds(0.0005)), "the size is 0.5 ms. Give whole milliseconds"),  # type: ignore[arg-type]
        (lambda: TumblingEventTimeWindows.of(60), "the size is int. .*Time or Duration"),  # type: ignore[arg-type]
        (lambda: EventTimeSessionWindows.with_gap(Time.seconds(0)), "a session has a gap of 0 ms"),
        (sliding_count, "CountTrigger of 0 rows"),
        (lambda: WindowHarness(GlobalWindows.create(), ROWS, key="key").reduce(max, uid="w"), "GlobalWindows never fire by themselves"),
        (
            lambda: WindowHarness(TEN, ROWS, key="key").trigger(NeverTrigger()).reduce(max, uid="w", event_time="at"),
            "never fire by themselves",
        ),
        (lambda: WindowHarness(TEN, ROWS, key="key").reduce(max, uid="w"), "event-time windows need the time of each row"),
        (
            lambda: (
                WindowHarness(TumblingProcessingTimeWindows.of(Time.seconds(1)), ROWS, key="key").allowed_lateness(1).reduce(max, uid="w")
            ),
            "only event-time windows have late rows",
        ),
        (lambda: WindowHarness(TEN, ROWS, key="key").allowed_lateness(-1), "is not a time"),
        (lambda: WindowHarness(TEN, ROWS, key="key").apply(Values, "a STRING", uid="w", event_time="at"), "got the class Values"),  # type: ignore[arg-type]
        (lambda: WindowHarness(TEN, ROWS, key="key").reduce(max, Values(), uid="w", event_time="at"), "belong together"),
        (lambda: WindowHarness(TEN, ROWS, key="key").aggregate(Total(), uid="w", event_time="at"), "output_type: is missing"),
        (lambda: WindowHarness("ten", ROWS, key="key").reduce(max, uid="w"), "expected a WindowAssigner, got str"),  # type: ignore[arg-type]
        (lambda: WindowHarness(TEN, ROWS, key="key").side_output_late_data("late"), "expected an OutputTag, got str"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_work_is_refused_before_it_starts(make: Callable[[], Any], message: str) -> None:
    """Each with what was given and the remedy."""
    with pytest.raises(InvalidInputError, match=message):
        make()


class Unmergeable(EventTimeTrigger):
    def can_merge(self) -> bool:
        return False


def test_a_trigger_that_cannot_merge_is_refused_for_sessions() -> None:
    """Before anything starts."""
    windows = WindowHarness(EventTimeSessionWindows(10), ROWS, key="key").trigger(Unmergeable())
    with pytest.raises(InvalidInputError, match="Unmergeable cannot merge windows"):
        windows.reduce(max, uid="w", event_time="at")


class Checkpointed(Values, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None: ...

    def snapshot_state(self, context: Any) -> None: ...


def test_operator_state_in_windows_is_refused() -> None:
    """Nobody would call its methods."""
    with pytest.raises(InvalidInputError, match="Checkpointed has operator state, which functions of windows cannot have"):
        WindowHarness(TEN, ROWS, key="key").apply(Checkpointed(), "a STRING", uid="w", event_time="at")


def test_many_windows_per_row_and_rows_that_stay_are_warned_of() -> None:
    """Both let state or work grow without being wrong."""
    many = WindowHarness(SlidingEventTimeWindows.of(Time.seconds(10), Time.milliseconds(1)), ROWS, key="key")
    with pytest.warns(UserWarning, match="each row belongs to 10,000 windows"):
        many.reduce(max, uid="w", event_time="at")
    with pytest.warns(UserWarning, match="CountTrigger never removes rows from a GlobalWindow"):
        WindowHarness(GlobalWindows.create(), ROWS, key="key").trigger(CountTrigger.of(2)).apply(
            Values(), "key STRING, start BIGINT, v ARRAY<BIGINT>", uid="w"
        )


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (WindowHarness(SlidingEventTimeWindows.of(Time.seconds(5), Time.seconds(10)), ROWS, key="key"), "gaps of 5,000 ms, and rows in them are dropped"),
        (WindowHarness(GlobalWindows.create(), ROWS, key="key").trigger(EventTimeTrigger.create()), "only when the job is drained"),
        (WindowHarness(GlobalWindows.create(), ROWS, key="key").trigger(PurgingTrigger.of(EventTimeTrigger.create())), "only when the job is drained"),
        (WindowHarness(TEN, ROWS, key="key").trigger(ProcessingTimeTrigger.create()), "ProcessingTimeTrigger does not fire it"),
        (WindowHarness(TEN, ROWS, key="key").trigger(PurgingTrigger.of(ProcessingTimeTrigger.create())), "ProcessingTimeTrigger does not fire it"),
    ],
)  # fmt: skip
def test_windows_that_lose_rows_or_hardly_ever_fire_are_warned_of(windows: WindowHarness, message: str) -> None:
    """Flink allows them, and says nothing."""
    with pytest.warns(UserWarning, match=message):
        windows.reduce(max, uid="w", event_time="at")


@pytest.mark.parametrize("trigger", [ProcessingTimeTrigger(), PurgingTrigger(ProcessingTimeTrigger()), PurgingTrigger(NeverTrigger())])
def test_triggers_that_never_fire_a_global_window_are_refused(trigger: Trigger) -> None:
    """No clock reaches the end of a GlobalWindow, nested or not."""
    with pytest.raises(InvalidInputError, match=r"GlobalWindows never fire by .*CountTrigger"):
        WindowHarness(GlobalWindows.create(), ROWS, key="key").trigger(trigger).reduce(max, uid="w")


@pytest.mark.parametrize("at", [(1 << 63) - 1, -(1 << 63) + 1])
@pytest.mark.parametrize("assigner", [TEN, SlidingEventTimeWindows(10, 3, 0)])
def test_event_times_at_the_ends_of_time_are_told(assigner: Any, at: int) -> None:
    """With what to do about such rows, to somebody who never wrote an assigner."""
    with (
        WindowHarness(assigner, "key STRING, n BIGINT, at BIGINT", key="key").reduce(lambda a, _: a, uid="w", event_time="at") as harness,
        pytest.raises(InvalidInputError, match="Filter rows with such event times before key_by"),
    ):
        harness.process_element(("a", 1, at))


class SaysNothing(EventTimeTrigger):
    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> Any:
        """Forget to return."""


class NoWindows(TumblingEventTimeWindows):
    def assign_windows(self, element: Any, timestamp: int | None, context: Any) -> Any:
        """Forget to return."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: WindowHarness(TEN, ROWS, key="key").trigger(SaysNothing()).reduce(lambda a, _: a, uid="w", event_time="at"),
            "SaysNothing returned None. Return a TriggerResult",
        ),
        (
            lambda: WindowHarness(NoWindows(10, 0), ROWS, key="key").reduce(lambda a, _: a, uid="w", event_time="at"),
            "assign_windows returned None",
        ),
        (
            lambda: WindowHarness(TEN, ROWS, key="key").reduce(lambda a, _: (a.key, 1), uid="w", event_time="at"),
            "reduce: it returned 2 values for 3 columns",
        ),
    ],
)
def test_what_a_function_returns_is_checked(make: Callable[[], KeyedProcessHarness], message: str) -> None:
    """With the method and the remedy."""
    with make() as harness, pytest.raises(InvalidInputError, match=message):
        harness.process_elements([("a", 1, 1), ("a", 2, 2)])


def ended(*_: Any) -> Any:
    """Raise what Python replaces when it leaves a generator, such as the one that runs the function."""
    return next(iter(()))


@pytest.mark.parametrize("assigner", [EventTimeSessionWindows(10), TEN])
def test_stop_iteration_of_a_function_is_told_as_the_users_error(assigner: Any) -> None:
    """With the user's traceback, whatever kind of windows calls the function."""
    with WindowHarness(assigner, ROWS, key="key").reduce(ended, uid="w", event_time="at") as harness:
        with pytest.raises(UserFunctionError, match="the function raised StopIteration") as caught:
            harness.process_elements([("a", 1, 1), ("a", 2, 2)])
        assert "in ended" in caught.value.user_traceback
        assert "RuntimeError" not in caught.value.user_traceback
