"""Savepoints of windows whose rows, contents and states have evolved, as they were written when sessions became one entry per key."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark import (
    AggregateFunction,
    EventTimeSessionWindows,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessWindowFunction,
    Row,
    Time,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    Window,
)
from statefulspark.checkpoint.inspect.reader import state_sizes
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.process.windows.late_rows import LateRow
from statefulspark.process.windows.window_operator import WindowOperator
from statefulspark.process.windows.windowed_transformations import StepTimes, WindowedTransformations
from statefulspark.testing import BATCH, DRAIN, SAVEPOINT, TestingJob
from statefulspark.testing.schemas import arrow_schema

_GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"
_COLUMNS = {1: "key STRING, value INT, at BIGINT", 2: "key STRING, tag STRING, value BIGINT, at BIGINT"}
_OUTPUT = "key STRING, end BIGINT, result STRING"
_WIDE = 1 << 40
"""Fits the second release's numbers only."""
_TYPES = {
    1: Types.ROW_NAMED(["number"], [Types.INT()]),
    2: Types.ROW_NAMED(["tag", "number"], [Types.STRING(), Types.LONG()], defaults={"tag": "old"}),
}


class Operators(WindowedTransformations[WindowOperator]):
    """Gives the operator of a window step over the columns of a release."""

    def __init__(self, release: int, assigner: Any) -> None:
        super().__init__(assigner)
        self._release = release

    def _columns(self) -> pa.Schema:
        return arrow_schema(_COLUMNS[self._release])

    def _late_row(self) -> Callable[[Any], Any]:
        return LateRow(tuple(range(len(self._columns()))))

    def _made(self, operator: WindowOperator, output_type: Any, times: StepTimes) -> WindowOperator:
        return operator


class EverySecond(Trigger):
    """Fires with every second row of a window; a state of the window counts them."""

    def __init__(self, release: int) -> None:
        self._seen = ValueStateDescriptor("seen", Types.INT() if release == 1 else Types.LONG())
        self._step = 1 if release == 1 else _WIDE + 1

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(self._seen)
        seen = (state.value() or 0) + self._step
        state.update(seen)
        return TriggerResult.CONTINUE if seen % 2 else TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._seen).clear()


class Firings(ProcessWindowFunction):
    """Numbers the firings of a window in states of three kinds, and gives out its rows and its earlier firings."""

    def __init__(self, release: int) -> None:
        self._release = release

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        states, type_ = context.window_state(), _TYPES[self._release]
        last = states.get_state(ValueStateDescriptor("last", type_))
        listed = states.get_list_state(ListStateDescriptor("listed", type_))
        mapped = states.get_map_state(MapStateDescriptor("mapped", Types.LONG(), type_))
        before: list[Any] = list(listed.get())
        assert last.value() == (before[-1] if before else None)
        assert dict(mapped.items()) == dict(enumerate(before))
        row = Row(number=len(before)) if self._release == 1 else Row(tag="new", number=_WIDE + len(before))
        last.update(row)
        listed.add(row)
        mapped.put(len(before), row)
        rows = ", ".join(f"{getattr(element, 'tag', '')} {element.value}" for element in elements)
        yield key, context.window().max_timestamp(), f"{rows} after {[tuple(each) for each in before]}"


class Sums(AggregateFunction[Any, Any, Any]):
    """Sums values and, in the second release, counts tags."""

    def __init__(self, release: int) -> None:
        self._release = release
        self.accumulator = Types.ROW_NAMED(["sum"], [Types.INT()])
        if release == 2:
            self.accumulator = Types.ROW_NAMED(["tags", "sum"], [Types.LONG(), Types.LONG()], defaults={"tags": 100})

    def create_accumulator(self) -> Any:
        return Row(sum=0) if self._release == 1 else Row(tags=0, sum=0)

    def add(self, value: Any, accumulator: Any) -> Any:
        total = accumulator["sum"] + value.value
        return Row(sum=total) if self._release == 1 else Row(tags=accumulator["tags"] + 1, sum=total)

    def get_result(self, accumulator: Any) -> Any:
        return " ".join(map(str, accumulator))

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return Row(**{name: acc_a[name] + acc_b[name] for name in acc_a._fields})


class Ends(ProcessWindowFunction):
    """Gives out the end of a session with its result."""

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        yield key, context.window().max_timestamp(), elements[0]


def windows(release: int) -> WindowOperator:
    made = Operators(release, TumblingEventTimeWindows.of(Time.milliseconds(10))).allowed_lateness(1000).trigger(EverySecond(release))
    return made.process(Firings(release), _OUTPUT, uid="w", event_time="at")


def sessions(release: int) -> WindowOperator:
    sums = Sums(release)
    made = Operators(release, EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
    return made.aggregate(sums, Ends(), sums.accumulator, _OUTPUT, uid="w", event_time="at")


STEPS = {"windows": windows, "sessions": sessions}


def job(step: str, release: int, **settings: Any) -> TestingJob:
    return TestingJob(STEPS[step](release), _COLUMNS[release], _OUTPUT, key="key", event_time="at", watermark_ms=50, **settings)


def write(step: str, folder: Path, backend: Any) -> str:
    """Make the savepoint: rows of ada and bob by the first release, then of ada and cyd by the second. It made the golden ones."""
    with job(step, 1, folder=folder / "first", backend=backend) as first:
        first.run([("ada", 1, 4), ("ada", 2, 5), ("ada", 3, 6), ("bob", 4, 5), BATCH, ("bob", 5, 6), SAVEPOINT])
        url = first.savepoints[0]
    with job(step, 2, folder=folder / "second", backend=backend, restore_from=url) as second:
        second.run([("ada", "new", _WIDE, 7), ("ada", "new", 6, 28), ("cyd", "new", 7, 8), ("cyd", "new", 8, 8), SAVEPOINT])
        return second.savepoints[0]


EVOLVED = {
    "windows": {
        "_window(TimeWindow, list)": 9,
        "_window.trigger(TimeWindow, list, seen)": 4,
        "_window.window(TimeWindow, list, last)": 3,
        "_window.window(TimeWindow, list, listed)": 3,
        "_window.window(TimeWindow, list, mapped)": 4,
    },
    "sessions": {"_sessions(MergingTimeWindow, aggregated)": 3, "_window(MergingTimeWindow, aggregated)": 0},
}
"""Entries of the states that have two schemas."""
EXPECTED = {
    "windows": [
        ("ada", 9, f"None 1, None 2, None 3, new {_WIDE}, newer 9, newer 10 after [('old', 0), ('new', {_WIDE + 1})]"),
        ("ada", 29, "new 6, newer 11 after []"),
        ("bob", 9, "None 4, None 5, newer 12, newer 13 after [('old', 0)]"),
        ("cyd", 9, f"new 7, new 8, newer 14, newer 15 after [('new', {_WIDE})]"),
        ("dan", 9, "newer 16, newer 17 after []"),
    ],
    "sessions": [
        ("ada", 17, f"103 {_WIDE + 25}"),
        ("ada", 37, "2 17"),
        ("bob", 17, "102 34"),
        ("cyd", 17, "4 44"),
        ("dan", 17, "2 33"),
    ],
}
"""What the job gives out after it was restored."""


def check(step: str, url: str, folder: Path, backend: Any) -> None:
    assert verify(url).problems == ()
    assert {size.info.name: size.entries for size in state_sizes(url) if len(size.info.schemas) == 2} == EVOLVED[step]
    rows = [("ada", 9), ("ada", 10), ("bob", 12), ("bob", 13), ("cyd", 14), ("cyd", 15), ("dan", 16), ("dan", 17)]
    for parallelism in (1, 3):
        settings = {"folder": folder / f"job-{parallelism}", "backend": backend, "parallelism": parallelism, "restore_from": url}
        with job(step, 2, **settings) as restored:
            output = restored.run([*((key, "newer", value, 8) for key, value in rows), ("ada", "newer", 11, 28), DRAIN])
            assert sorted(output) == EXPECTED[step]
            assert {name: restored.state(name) for name in EVOLVED[step]} == {name: {} for name in EVOLVED[step]}
            assert restored.event_time_timers() == []


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("step", STEPS)
def test_a_savepoint_of_evolved_windows_restores(tmp_path: Path, step: str, backend: Any) -> None:
    """Never regenerate the golden ones. Contents, states of triggers and functions, and joint sessions, each of both releases."""
    check(step, shutil.copytree(_GOLDEN / f"savepoint-{backend}-evolved-{step}", tmp_path / "savepoint").as_uri(), tmp_path, backend)


@pytest.mark.parametrize("backend", ["memory", *left_to_test_all(("filesystem", "rocksdb"))])
@pytest.mark.parametrize("step", STEPS)
def test_a_new_savepoint_of_evolved_windows_restores(tmp_path: Path, step: str, backend: Any) -> None:
    """The same with what today's code writes."""
    check(step, write(step, tmp_path / "old", backend), tmp_path, backend)
