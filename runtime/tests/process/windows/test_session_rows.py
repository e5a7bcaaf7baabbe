"""Sessions that take the rows of a key together: against the window operator, which takes them one by one, and what they write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statefulspark import (
    AggregateFunction,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    SessionWindowTimeGapExtractor,
    TimeWindow,
    Trigger,
    TriggerResult,
    Types,
)
from statefulspark.process.windows.session_forms import SessionForms
from statefulspark.process.windows.session_rows import SessionRows
from statefulspark.testing import KeyedProcessHarness, WindowHarness
from statefulspark.testing.process_harness import HarnessSnapshot

from .stored_sessions import sessions_of, timers_of
from .window_functions import ROWS, stored

LATE = OutputTag("late", ROWS)
OUTPUT = "key STRING, start BIGINT, end BIGINT, values STRING"
KEYS = ("a", "b")


class OneByOne(EventTimeTrigger):
    """Does the same, but a trigger of one's own gets each row."""


class Gaps(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return int(element.value) % 4 + 1


class Listed(AggregateFunction[Any, list[int], str]):
    """The values in the order in which they came, in an accumulator that can be changed in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value.value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> str:
        return ",".join(map(str, accumulator))

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a.extend(acc_b)
        return acc_a


class Summed(AggregateFunction[Any, int, str]):
    """A number, which a session of its own is packed with."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator * 3 + int(value.value)

    def get_result(self, accumulator: int) -> str:
        return str(accumulator)

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Bounds(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        window = context.window()
        assert isinstance(window, TimeWindow)
        (value,) = elements
        yield key, window.start, window.end, value


def made(
    trigger: Trigger, lateness: int, *, dynamic: bool, numbers: bool = False, function: ProcessWindowFunction | None = None
) -> KeyedProcessHarness:
    gap = EventTimeSessionWindows.with_dynamic_gap(Gaps()) if dynamic else EventTimeSessionWindows(5)
    windows = WindowHarness(gap, ROWS, key="key", max_parallelism=2).trigger(trigger).side_output_late_data(LATE)
    aggregate, accumulator = (Summed(), Types.LONG()) if numbers else (Listed(), Types.LIST(Types.LONG()))
    windows = windows.allowed_lateness(lateness)
    return windows.aggregate(aggregate, function or Bounds(), accumulator, OUTPUT, uid="w", event_time="at")


STEPS = st.one_of(
    st.tuples(st.just("rows"), st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-20, 40)), min_size=1, max_size=12)),
    st.tuples(st.just("watermark"), st.integers(0, 15)),
    st.tuples(st.sampled_from(["retry", "restore", "swap"]), st.none()),
)


@example(
    steps=[("rows", [("a", 20), ("a", 0)]), ("swap", None), ("rows", [("a", 10), ("a", 5), ("a", 15)])],
    lateness=0,
    dynamic=False,
    numbers=False,
)
@example(
    steps=[("rows", [("a", 0)]), ("watermark", 30), ("rows", [("a", 3), ("a", 8), ("a", -9)])], lateness=40, dynamic=False, numbers=True
)
@given(steps=st.lists(STEPS, max_size=16), lateness=st.sampled_from([0, 0, 3, 40]), dynamic=st.booleans(), numbers=st.booleans())
def test_rows_that_are_taken_together_are_as_rows_taken_one_by_one(
    steps: list[tuple[str, Any]], lateness: int, dynamic: bool, numbers: bool
) -> None:
    """Output, late rows, and what is stored after each batch, timers included; either way goes on with the state of the other."""
    triggers: list[Trigger] = [EventTimeTrigger(), OneByOne()]
    both = [made(trigger, lateness, dynamic=dynamic, numbers=numbers) for trigger in triggers]
    for harness in both:
        harness.open()
    watermark, number, can_retry = -20, 0, False
    for step, given_value in [*steps, ("watermark", 200)]:
        if step == "retry" and not can_retry:
            continue
        can_retry = step in {"rows", "watermark", "retry"}
        if step == "rows":
            rows = [(key, number + index, at) for index, (key, at) in enumerate(given_value)]
            number += len(rows)
            for harness in both:
                harness.process_elements(rows)
        elif step == "watermark":
            watermark += given_value
            for harness in both:
                harness.process_watermark(watermark)
        elif step == "retry":
            for harness in both:
                harness.retry()
        else:
            snapshots = [harness.snapshot() for harness in both]
            assert _stored(snapshots[0], lateness) == _stored(snapshots[1], lateness)
            triggers = triggers[::-1] if step == "swap" else triggers
            _compare(both, lateness)
            both = [made(trigger, lateness, dynamic=dynamic, numbers=numbers) for trigger in triggers]
            for harness, snapshot in zip(both, snapshots, strict=True):
                harness.restore(snapshot)
                harness.open()
    assert stored(both[0]) == []
    _compare(both, lateness)


def _stored(snapshot: HarnessSnapshot, lateness: int) -> tuple[Any, ...]:
    """Return what is stored, in whichever form. With a lateness, separate sessions have a second timer before they end."""
    joint, separate = sessions_of(snapshot)
    return joint | separate, None if lateness else timers_of(snapshot)


def _compare(both: list[KeyedProcessHarness], lateness: int) -> None:
    one, other = both
    assert one.get_output() == other.get_output()
    assert one.get_side_output(LATE) == other.get_side_output(LATE)
    assert _stored(one.snapshot(), lateness) == _stored(other.snapshot(), lateness)
    one.close()
    other.close()


class Cleared(Bounds):
    """Notes the windows that are removed; of an object's own attribute too."""

    ended: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, *, by_attribute: bool) -> None:
        self.by_attribute = by_attribute

    def open(self, runtime_context: RuntimeContext) -> None:
        if self.by_attribute:
            self.clear = self.note  # type: ignore[method-assign]  # what a user may do
        else:
            self.clear = super().clear  # type: ignore[method-assign]  # the method that does nothing

    def note(self, context: ProcessWindowFunction.Context) -> None:
        self.ended.append((context.window(), context.current_watermark()))


class ClearedByMethod(Cleared):
    def open(self, runtime_context: RuntimeContext) -> None:
        pass

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        self.note(context)


@pytest.mark.parametrize("function", [ClearedByMethod(by_attribute=False), Cleared(by_attribute=True), Cleared(by_attribute=False)])
def test_the_function_is_told_of_each_session_that_is_removed(function: Cleared) -> None:
    """By a timer, and by a row when the lateness is less than before."""
    Cleared.ended.clear()
    with made(EventTimeTrigger(), 100, dynamic=False, numbers=True, function=function) as harness:
        harness.process_elements([("a", 1, 0), ("a", 2, 20), ("b", 3, 2)])
        harness.process_watermark(30)
        assert Cleared.ended == []
        snapshot = harness.snapshot()
    shorter = made(EventTimeTrigger(), 0, dynamic=False, numbers=True, function=function)
    shorter.restore(snapshot)
    with shorter:
        shorter.process_element(("a", 4, 40))
        shorter.process_watermark(200)
    told = function.by_attribute or isinstance(function, ClearedByMethod)
    ended = [(0, 5), (20, 25), (40, 45), (2, 7)] if told else []
    assert sorted(window for window, _ in Cleared.ended) == sorted(TimeWindow(*bounds) for bounds in ended)


def test_the_contents_of_a_session_are_written_once_per_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows of the key come, and however often its sessions merge on the way."""
    written: list[Any] = []
    save = SessionForms.save

    def counted(self: SessionForms, sessions: Any, *others: Any) -> None:
        written.extend(sessions)
        save(self, sessions, *others)

    monkeypatch.setattr(SessionForms, "save", counted)
    with made(EventTimeTrigger(), 0, dynamic=False) as harness:
        harness.process_elements([("a", number, 6 * (number % 50) - 3 * (number // 50)) for number in range(100)])
        assert len(written) == 1


def test_state_that_another_trigger_has_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger without state takes over from one that counts. Where no state is left, rows are taken together."""
    together: list[bool] = []
    add = SessionRows.add

    def noted(self: SessionRows, *given: Any) -> list[Any]:
        together.append(True)
        return add(self, *given)

    with made(CountTrigger.of(100), 0, dynamic=False) as harness:
        harness.process_elements([("a", 1, 0), ("a", 2, 3), ("a", 3, 20)])
        snapshot = harness.snapshot()
    monkeypatch.setattr(SessionRows, "add", noted)
    changed = made(EventTimeTrigger(), 0, dynamic=False)
    changed.restore(snapshot)
    with changed:
        changed.process_element(("a", 4, 6))
        assert together == []
        changed.process_watermark(100)
        assert changed.get_output() == [("a", 0, 11, "1,2,4"), ("a", 20, 25, "3")]
        assert stored(changed) == []
        snapshot = changed.snapshot()
    again = made(EventTimeTrigger(), 0, dynamic=False)
    again.restore(snapshot)
    with again:
        again.process_element(("a", 5, 200))
        assert together == [True]


class Silent(EventTimeTrigger):
    """Never fires, and leaves the timer of the cleanup alone."""

    def on_element(self, element: Any, timestamp: int | None, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE


def test_a_session_whose_only_timer_is_that_of_another_ones_end_leaves_nothing() -> None:
    """Its cleanup was due when the other ends, by the lateness that the step had; the end of the other removes both."""
    with made(Silent(), 6, dynamic=False) as harness:
        harness.process_element(("a", 1, 0))
        snapshot = harness.snapshot()
    outputs = []
    for trigger in (EventTimeTrigger(), OneByOne()):
        restored = made(trigger, 0, dynamic=False)
        restored.restore(snapshot)
        with restored:
            restored.process_element(("a", 2, 6))
            restored.process_watermark(10)
            assert stored(restored) == []
            outputs.append(restored.get_output())
    assert outputs == [[("a", 6, 11, "2")]] * 2


def test_sessions_that_touch_or_are_late_are_left_to_the_operator() -> None:
    """A smaller lateness ends sessions that are in flight, and they leave nothing."""
    with made(EventTimeTrigger(), 3_600_000, dynamic=False) as harness:
        harness.process_element(("a", 1, 0))
        harness.process_watermark(20)
        snapshot = harness.snapshot()
    restored = made(EventTimeTrigger(), 0, dynamic=False)
    restored.restore(snapshot)
    with restored:
        restored.process_elements([("a", 2, 17), ("a", 3, 3)])
        restored.process_watermark(4_000_000)
        assert restored.get_output() == [("a", 17, 22, "2")]
        assert [row.value for row in restored.get_side_output(LATE)] == [3]
        assert stored(restored) == []
