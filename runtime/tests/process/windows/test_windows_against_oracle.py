"""Random windows over random rows against an oracle, with retries, restores and failures between any two batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statefulspark import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    OutputTag,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    Window,
    WindowAssigner,
    WindowFunction,
)
from statefulspark.process.windows.windowed_transformations import WindowedTransformations
from statefulspark.testing import KeyedProcessHarness, WindowHarness

from .window_oracle import KeyOracle, Rules

ROWS = "key STRING, value BIGINT, at BIGINT"
OUTPUT = "key STRING, start BIGINT, end BIGINT, values STRING"
LATE = OutputTag("late", ROWS)
KEYS = ("a", "b")
STEPS = st.one_of(
    st.tuples(st.just("rows"), st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-30, 60)), min_size=1, max_size=6)),
    st.tuples(st.just("watermark"), st.integers(0, 25)),
    st.tuples(st.just("clock"), st.integers(0, 25)),
    st.tuples(st.sampled_from(["retry", "restore"]), st.none()),
)


def triggers(*, merging: bool, event_time: bool) -> st.SearchStrategy[tuple[Any, ...]]:
    del merging
    kinds = [("count", 1), ("count", 3), *([("event",), ("every", 4), ("every", 50)] if event_time else [("processing",)])]
    plain = st.sampled_from(kinds)
    return st.one_of(plain, st.tuples(st.just("purging"), plain))


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    kind = draw(st.sampled_from(["tumbling", "sliding", "session", "count", "sliding count", "global"]))
    event_time = kind in {"tumbling", "sliding", "session"} and draw(st.booleans())
    size = draw(st.integers(1, 12))
    evictor = draw(st.none() | st.tuples(st.just("count"), st.integers(1, 3)) | st.tuples(st.just("time"), st.integers(1, 10)))
    if kind in {"count", "sliding count"}:
        numbers = (size, draw(st.integers(1, 6))) if kind == "sliding count" else (size,)
        return Rules((kind, *numbers), ("purging", ("count", size)), False, 0, evictor)
    if kind == "global":
        number = draw(st.integers(1, 4))
        return Rules((kind,), draw(st.sampled_from([("count", number), ("purging", ("count", number))])), False, 0, evictor)
    lateness = draw(st.sampled_from([0, 0, 3, 40])) if event_time else 0
    trigger = draw(triggers(merging=kind == "session", event_time=event_time))
    if kind == "session":
        return Rules((kind, size), trigger, event_time, lateness, evictor)
    slide = draw(st.integers(max(1, size // 4), size + 3)) if kind == "sliding" else size
    offset = draw(st.integers(1 - slide, slide - 1))
    return Rules((kind, size, *((slide,) if kind == "sliding" else ()), offset), trigger, event_time, lateness, evictor)


def assigner_of(chosen: Rules) -> WindowAssigner:
    kind, *numbers = chosen.assigner
    if kind == "global":
        return GlobalWindows.create()
    classes: dict[tuple[str, bool], Any] = {
        ("tumbling", True): TumblingEventTimeWindows,
        ("tumbling", False): TumblingProcessingTimeWindows,
        ("sliding", True): SlidingEventTimeWindows,
        ("sliding", False): SlidingProcessingTimeWindows,
        ("session", True): EventTimeSessionWindows,
        ("session", False): ProcessingTimeSessionWindows,
        ("count", False): CountTumblingWindowAssigner,
        ("sliding count", False): CountSlidingWindowAssigner,
    }
    assigner: WindowAssigner = classes[kind, chosen.event_time](*numbers)
    return assigner


def trigger_of(chosen: tuple[Any, ...]) -> Trigger:
    if chosen[0] == "purging":
        return PurgingTrigger.of(trigger_of(chosen[1]))
    if chosen[0] == "count":
        return CountTrigger.of(chosen[1])
    if chosen[0] == "every":
        return ContinuousEventTimeTrigger(chosen[1])
    return EventTimeTrigger.create() if chosen[0] == "event" else ProcessingTimeTrigger.create()


def evictor_of(chosen: tuple[Any, ...]) -> Evictor:
    return CountEvictor.of(chosen[1]) if chosen[0] == "count" else TimeEvictor(chosen[1])


def bounds(window: Window) -> tuple[int | None, int | None]:
    if isinstance(window, TimeWindow):
        return window.start, window.end
    return (window.id, None) if isinstance(window, CountWindow) else (None, None)


class Listed(ProcessWindowFunction):
    """All values of the window."""

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        yield key, *bounds(context.window()), ",".join(str(each.value) for each in elements)


class Joined(AggregateFunction[Any, str, str]):
    """The same, as an aggregate."""

    def create_accumulator(self) -> str:
        return ""

    def add(self, value: Any, accumulator: str) -> str:
        return f"{accumulator},{value.value}".strip(",")

    def get_result(self, accumulator: str) -> str:
        return accumulator

    def merge(self, acc_a: str, acc_b: str) -> str:
        return f"{acc_a},{acc_b}"


class Named(WindowFunction):
    """The aggregate with its window."""

    def apply(self, key: Any, window: Window, inputs: list[Any]) -> Iterable[Any]:
        (value,) = inputs
        return [(key, *bounds(window), value)]


class Summed(WindowFunction):
    """The reduced row with its window."""

    def apply(self, key: Any, window: Window, inputs: list[Any]) -> Iterable[Any]:
        (row,) = inputs
        yield key, *bounds(window), str(row.value)


def harness_of(chosen: Rules, method: str) -> KeyedProcessHarness:
    windows: WindowedTransformations[KeyedProcessHarness] = WindowHarness(assigner_of(chosen), ROWS, key="key", max_parallelism=8)
    if chosen.assigner[0] not in {"count", "sliding count"}:  # they have this trigger anyway
        windows = windows.trigger(trigger_of(chosen.trigger))
    if chosen.event_time:
        windows = windows.allowed_lateness(chosen.lateness).side_output_late_data(LATE)
    if chosen.evictor is not None:
        windows = windows.evictor(evictor_of(chosen.evictor))
    if method == "aggregate":
        return windows.aggregate(Joined(), Named(), Types.STRING(), OUTPUT, uid="windows", event_time="at")
    if method == "reduce":
        return windows.reduce(lambda a, b: (a.key, a.value + b.value, b.at), Summed(), OUTPUT, uid="windows", event_time="at")
    return windows.process(Listed(), OUTPUT, uid="windows", event_time="at")


def run(chosen: Rules, steps: list[tuple[str, Any]], method: str) -> None:
    """Run the program on harness and oracle and compare."""
    oracles = {key: KeyOracle(chosen) for key in KEYS}
    harness = harness_of(chosen, method)
    harness.open()
    emitted: list[Any] = []
    late: list[Any] = []
    watermark, now, number, can_retry = -(1 << 63), 0, 0, False
    for step, given_value in [*steps, ("clock", 1_000), ("watermark", 1_000)]:
        rows: list[tuple[str, int, int]] = []
        if step == "rows":
            rows = [(key, number + index, at) for index, (key, at) in enumerate(given_value)]
            number += len(rows)
            harness.process_elements(rows)
        elif step == "watermark":
            watermark = max(watermark, -30) + given_value
            harness.process_watermark(watermark)
        elif step == "clock":
            now += given_value
            harness.set_processing_time(now)
        elif step == "retry":
            if can_retry:
                harness.retry()
            continue
        else:
            snapshot = harness.snapshot()
            emitted += harness.get_output()
            late += harness.get_side_output(LATE) if chosen.event_time else []
            harness.close()
            harness = harness_of(chosen, method)
            harness.restore(snapshot)
            harness.open()
            can_retry = False
            continue
        can_retry = True
        for key, oracle in oracles.items():
            oracle.batch([(value, at) for row_key, value, at in rows if row_key == key], watermark, now)
    emitted += harness.get_output()
    late += harness.get_side_output(LATE) if chosen.event_time else []
    entries = harness.snapshot().entries
    states = {state.state_id: state.name for state in harness.snapshot().states}
    harness.close()
    for key, oracle in oracles.items():
        values = [str(sum(each)) if method == "reduce" else ",".join(map(str, each)) for _, each in oracle.emitted]
        windows = [window for window, _ in oracle.emitted]
        assert [tuple(row) for row in emitted if row[0] == key] == [
            (key, *window, value) for window, value in zip(windows, values, strict=True)
        ]
        assert [row[1] for row in late if row[0] == key] == oracle.late
    if chosen.assigner[0] in {"tumbling", "sliding", "session"}:
        assert [states[int.from_bytes(store_key[2:4], "big")] for store_key, _ in entries] == []


@pytest.mark.filterwarnings("ignore:trigger. CountTrigger never removes rows")
@pytest.mark.filterwarnings("ignore:window. windows leave gaps")
@pytest.mark.parametrize("method", ["process", "aggregate", "reduce"])
@given(chosen=rules(), steps=st.lists(STEPS, max_size=14))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_windows_emit_what_the_oracle_says(method: str, chosen: Rules, steps: list[tuple[str, Any]]) -> None:
    """Windows, order, values and late rows are the oracle's, and windows by time leave nothing in the store once they have ended."""
    run(chosen, steps, method)
