"""State per window: gone with its window, whoever declared it and whenever; and what is refused before a job starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from statefulspark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    ContinuousEventTimeTrigger,
    CountTrigger,
    CountTumblingWindowAssigner,
    DeltaEvictor,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    ListStateDescriptor,
    MapStateDescriptor,
    NeverTrigger,
    OutputTag,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    SlidingEventTimeWindows,
    StateTtlConfig,
    Time,
    TimestampedValue,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    Window,
    WindowFunction,
)
from statefulspark.errors import InvalidInputError, NotRestorableError, UserFunctionError
from statefulspark.testing import KeyedProcessHarness, WindowHarness

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


def stored(harness: KeyedProcessHarness) -> list[str]:
    """Names of the states that have entries."""
    snapshot = harness.snapshot()
    names = {state.state_id: state.name for state in snapshot.states}
    return [names[int.from_bytes(key[2:4], "big")] for key, _ in snapshot.entries]


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


class Values(WindowFunction):
    def apply(self, key: Any, window: Window, inputs: list[Any]) -> Iterable[Any]:
        assert isinstance(window, TimeWindow)
        return [(key, window.start, [row.value for row in inputs])]


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


class Adds(Evictor):
    def evict_before(self, elements: list[TimestampedValue], size: int, window: Window, evictor_context: Evictor.EvictorContext) -> None:
        elements.append(TimestampedValue(elements[0].value, 1))

    def evict_after(self, elements: list[TimestampedValue], size: int, window: Window, evictor_context: Evictor.EvictorContext) -> None: ...


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
        (WindowHarness(TEN, ROWS, key="key"), Text(), "process of the step 'harness' returned a str"),
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
        pytest.raises(InvalidInputError, match=r"a row has no event time.*Filter such rows"),
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


def test_late_rows_without_a_tag_are_counted() -> None:
    """Under Flink's name."""
    with WindowHarness(TEN, ROWS, key="key").reduce(lambda a, _: a, uid="w", event_time="at") as harness:
        harness.process_watermark(100)
        harness.process_elements([("a", 1, 5), ("b", 1, 6), ("b", 1, 106)])
        running: Any = harness._running
        assert running.function.runner.metrics.values()["numLateRecordsDropped"] == 2


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
