"""Windows in flight when the columns of their rows, or the states of their functions, change: against a model that converts all of it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from statefulspark import (
    AggregateFunction,
    CountEvictor,
    EventTimeSessionWindows,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessWindowFunction,
    Row,
    StateTtlConfig,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    Window,
    WindowFunction,
)
from statefulspark.errors import NotRestorableError
from statefulspark.testing import KeyedProcessHarness, WindowHarness

OLD = "key STRING, value INT, at BIGINT"
NEW = "key STRING, tag STRING, value BIGINT, at BIGINT"
LATENESS_MS = 100


class Rows(WindowFunction):
    def apply(self, key: Any, window: Window, inputs: list[Any]) -> Iterable[Any]:
        del window
        return [(key, ", ".join(f"{getattr(row, 'tag', 'no tag')} {row.value}" for row in inputs))]


class Sums(AggregateFunction[Any, Any, Any]):
    """Sums values and, in the second release, counts tags."""

    def __init__(self, release: int) -> None:
        self.release = release

    @property
    def accumulator(self) -> Any:
        if self.release == 1:
            return Types.ROW_NAMED(["sum"], [Types.INT()])
        return Types.ROW_NAMED(["tags", "sum"], [Types.LONG(), Types.LONG()], defaults={"tags": 100})

    def create_accumulator(self) -> Any:
        return Row(sum=0) if self.release == 1 else Row(tags=0, sum=0)

    def add(self, value: Any, accumulator: Any) -> Any:
        total = accumulator["sum"] + value.value
        return Row(sum=total) if self.release == 1 else Row(tags=accumulator["tags"] + 1, sum=total)

    def get_result(self, accumulator: Any) -> Any:
        return "", " ".join(map(str, accumulator))

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return Row(**{name: acc_a[name] + acc_b[name] for name in acc_a._fields})


def _reduced(windows: WindowHarness, release: int) -> KeyedProcessHarness:
    if release == 1:
        return windows.reduce(lambda a, b: (a.key, a.value + b.value, b.at), uid="w", event_time="at")
    return windows.reduce(lambda a, b: (a.key, f"{a.tag}+{b.tag}", a.value + b.value, b.at), uid="w", event_time="at")


def _aggregated(windows: WindowHarness, release: int) -> KeyedProcessHarness:
    function = Sums(release)
    return windows.aggregate(
        function, accumulator_type=function.accumulator, output_type="key STRING, result STRING", uid="w", event_time="at"
    )


def _listed(windows: WindowHarness, release: int) -> KeyedProcessHarness:
    del release
    return windows.apply(Rows(), "key STRING, rows STRING", uid="w", event_time="at")


def _evicted(windows: WindowHarness, release: int) -> KeyedProcessHarness:
    return _listed(windows.evictor(CountEvictor.of(10)), release)


WIDE = 1 << 40


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows.of(Time.milliseconds(10)), EventTimeSessionWindows(10)])
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (_reduced, ("a", "None+new", 3 + WIDE, 6)),
        (_aggregated, ("", f"101 {3 + WIDE}")),
        (_listed, ("a", f"None 1, None 2, new {WIDE}")),
        (_evicted, ("a", f"None 1, None 2, new {WIDE}")),
    ],
)
def test_rows_of_a_window_get_the_new_columns(
    assigner: Any, made: Callable[[WindowHarness, int], KeyedProcessHarness], expected: Any
) -> None:
    """A column is added and another one becomes wider while the window is open; nothing of it is left when it has closed."""
    with made(WindowHarness(assigner, OLD, key="key"), 1) as harness:
        harness.process_elements([("a", 1, 4), ("a", 2, 5)])
        snapshot = harness.snapshot()
    restored = made(WindowHarness(assigner, NEW, key="key"), 2)
    restored.restore(snapshot)
    with restored:
        restored.process_element(("a", "new", WIDE, 6))
        restored.process_watermark(50)
        assert [tuple(row) for row in restored.get_output()] == [expected]
        assert restored.snapshot().entries == ()


def test_a_column_of_another_kind_is_refused() -> None:
    """The window's rows cannot become it; the error shows both."""
    with _listed(WindowHarness(EventTimeSessionWindows(10), OLD, key="key"), 1) as harness:
        harness.process_element(("a", 1, 4))
        snapshot = harness.snapshot()
    restored = _listed(WindowHarness(EventTimeSessionWindows(10), "key STRING, value STRING, at BIGINT", key="key"), 1)
    restored.restore(snapshot)
    with pytest.raises(NotRestorableError, match=r"value +LONG +value +STRING +of another kind"):
        restored.open()


TYPES = [
    Types.ROW_NAMED(["number"], [Types.LONG()]),
    Types.ROW_NAMED(["tag", "number"], [Types.STRING(), Types.LONG()], defaults={"tag": "none"}),
    Types.ROW_NAMED(["number", "tag"], [Types.LONG(), Types.STRING()], defaults={"tag": "lost"}),
]
DEFAULTS = ["", "none", "lost"]


def tag_of(row: Any) -> str:
    return row["tag"] if "tag" in row else "-"  # noqa: SIM401  a Row has no get


class Numbered(ProcessWindowFunction):
    """Numbers the firings of each window in states of three kinds, with a tag in some versions."""

    def __init__(self, version: int) -> None:
        self.version = version

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        states, type_ = context.window_state(), TYPES[self.version]
        last = states.get_state(ValueStateDescriptor("last", type_))
        listed = states.get_list_state(ListStateDescriptor("list", type_))
        mapped = states.get_map_state(MapStateDescriptor("map", Types.LONG(), type_))
        before: Any = last.value()
        number = 1 if before is None else before["number"] + 1
        rows: list[Any] = list(listed.get())
        assert [row["number"] for row in rows] == list(range(1, number))
        assert dict(mapped.items()) == {row["number"]: row for row in rows}
        assert before == (rows[-1] if rows else None)
        row = Row(number=number) if not self.version else Row(**{n: number if n == "number" else "new" for n in type_.get_field_names()})
        last.update(row)
        listed.add(row)
        mapped.put(number, row)
        yield key, context.window().max_timestamp(), " ".join(tag_of(each) for each in rows)


class Oracle:
    """By key and end of the window: the tags of its firings, None for those without. Converted when a version first declares the states."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], list[str | None]] = {}
        self.stored = self.version = 0
        self.expected: list[tuple[str, int, str]] = []

    def fires(self, key: str, end: int) -> None:
        if self.stored != self.version:
            for tags in self.kept.values():
                tags[:] = [None if not self.version else DEFAULTS[self.version] if tag is None else tag for tag in tags]
            self.stored = self.version
        tags = self.kept.setdefault((key, end), [])
        self.expected.append((key, end, " ".join(tag or "-" for tag in tags)))
        tags.append("new" if self.version else None)

    def closes(self, watermark: int) -> None:
        for name in [name for name in self.kept if name[1] + LATENESS_MS <= watermark]:
            del self.kept[name]


def _numbered(version: int) -> KeyedProcessHarness:
    windows = WindowHarness(TumblingEventTimeWindows.of(Time.milliseconds(10)), "key STRING, value BIGINT, at BIGINT", key="key")
    output = "key STRING, end BIGINT, tags STRING"
    return windows.allowed_lateness(LATENESS_MS).process(Numbered(version), output, uid="w", event_time="at")


def _lives(seed: int) -> int:
    """Late rows let windows fire again, in whatever version of the function; windows also close before the version has declared a state."""
    random, oracle = Random(seed), Oracle()
    harness, watermark, upgrades = _numbered(0), 200, 0
    harness.open()
    harness.process_watermark(watermark)
    may_retry = False
    for _ in range(40):
        step = random.choice(["rows", "rows", "rows", "time", "retry", "upgrade"])
        match step:
            case "rows":
                rows = []
                for _ in range(random.randint(1, 3)):
                    # Late, but not too late.
                    at = random.randrange(watermark - LATENESS_MS + 10, watermark - 10)
                    rows.append((random.choice("ab"), 1, at))
                    oracle.fires(rows[-1][0], at // 10 * 10 + 9)
                harness.process_elements(rows)
            case "time":
                watermark += random.choice([5, 20, 60, 150])
                oracle.closes(watermark)
                harness.process_watermark(watermark)
            case "retry":
                if may_retry:
                    harness.retry()
            case _:
                snapshot = harness.snapshot()
                found = [tuple(row) for row in harness.get_output()]
                assert sorted(found) == sorted(oracle.expected)
                oracle.expected = []
                harness.close()
                oracle.version = random.randrange(3)
                harness = _numbered(oracle.version)
                harness.restore(snapshot)
                harness.open()
                upgrades += oracle.version != oracle.stored
        may_retry = step != "upgrade" and (may_retry or step != "retry")
    assert sorted(tuple(row) for row in harness.get_output()) == sorted(oracle.expected)
    harness.process_watermark(watermark + 1_000)
    assert harness.snapshot().entries == ()
    harness.close()
    return upgrades


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 1000), marks=pytest.mark.exhaustive)])
def test_states_of_window_functions_evolve(seeds: range) -> None:
    """Values, lists and maps of windows are those of the model, and nothing is left of windows that have closed."""
    assert sum(map(_lives, seeds)) > len(seeds)


def test_a_batch_removes_a_window_before_it_declares_the_state_anew() -> None:
    """The removal is not lost when the new declaration takes the place of the remembered one, and neither is what the batch adds."""
    with _numbered(0) as harness:
        harness.process_element(("a", 1, 5))
        harness.process_watermark(20)
        harness.process_element(("a", 1, 205))
        snapshot = harness.snapshot()
    restored = _numbered(1)
    restored.restore(snapshot)
    with restored:
        restored.process_watermark(300)
        restored.process_element(("a", 1, 206))
        assert [tuple(row) for row in restored.get_output()] == [("a", 209, ""), ("a", 209, "new")]
        restored.process_watermark(1_000)
        assert restored.snapshot().entries == ()


class Firings(ProcessWindowFunction):
    """Counts the firings of a window, with or without a time to live."""

    def __init__(self, ttl_ms: int | None) -> None:
        self._ttl_ms = ttl_ms

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        descriptor = ValueStateDescriptor("firings", Types.LONG())
        if self._ttl_ms is not None:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(self._ttl_ms)).build())
        state = context.window_state().get_state(descriptor)
        firings = (state.value() or 0) + 1
        state.update(firings)
        yield key, context.window().max_timestamp() - 9, firings


@pytest.mark.parametrize("cleans_first", [True, False])
@pytest.mark.parametrize(("before_ms", "after_ms", "firings"), [(None, 10_000, [2, 1]), (10_000, None, [2, 3])])
def test_time_to_live_of_window_state_is_switched(
    before_ms: int | None, after_ms: int | None, firings: list[int], cleans_first: bool
) -> None:
    """Whether another window is removed before the new function declares the state, or not."""
    windows = WindowHarness(TumblingEventTimeWindows.of(Time.milliseconds(10)), "key STRING, value BIGINT, at BIGINT", key="key")

    def made(ttl_ms: int | None) -> KeyedProcessHarness:
        output = "key STRING, start BIGINT, firings BIGINT"
        return windows.allowed_lateness(1000).process(Firings(ttl_ms), output, uid="w", event_time="at")

    with made(before_ms) as harness:
        harness.set_processing_time(1_000)
        harness.process_elements([("a", 1, 5), ("a", 1, 1005)])
        harness.process_watermark(1007)
        harness.process_watermark(1020 - 10)
        harness.process_watermark(1014)
        snapshot = harness.snapshot()
    restored = made(after_ms)
    restored.restore(snapshot)
    with restored:
        if cleans_first:
            restored.process_watermark(1_100)
        restored.set_processing_time(2_000)
        restored.process_watermark(1_100)
        restored.process_elements([("a", 1, 1006)])
        restored.set_processing_time(20_000)
        restored.process_elements([("a", 1, 1007)])
        assert [row.firings for row in restored.get_output()] == firings
        restored.process_watermark(5_000)
        assert restored.snapshot().entries == ()
