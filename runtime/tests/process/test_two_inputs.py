"""Functions with two keyed inputs in one slot: which row comes when, what is read of it, whose watermark counts, and what is refused."""

from __future__ import annotations

import doctest
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statefulspark import (
    CheckpointedFunction,
    CoFlatMapFunction,
    CoMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    OutputTag,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)
from statefulspark.coordinator.batches import event_times
from statefulspark.errors import InvalidInputError, UserFunctionError
from statefulspark.process.adapters.co_function_adapters import CoFlatMapAdapter, CoMapAdapter
from statefulspark.process.rows.step_spec import InputSpec, StepSpec
from statefulspark.testing import (
    BATCH,
    KILL_DRIVER,
    SECOND,
    KeyedProcessHarness,
    KeyedTwoInputProcessHarness,
    SecondInput,
    TestingJob,
    process_harness,
)
from statefulspark.testing import two_input_harness as harness_module

FIRST = pa.schema([("user", pa.string()), ("at", pa.timestamp("us")), ("n", pa.int64())])
OTHER = SecondInput({"n": pa.int64(), "id": pa.string(), "when": pa.timestamp("us")}, key="id", event_time="when")
OUTPUT = "user STRING, input INT, n BIGINT, before BIGINT, at BIGINT"


class Order(KeyedCoProcessFunction):
    """Emits each row with its input, the number of rows of its key before it, and its event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rows = runtime_context.get_state(ValueStateDescriptor("rows", Types.LONG()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        return self._row(1, value, ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        return self._row(2, value, ctx)

    def _row(self, number: int, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        before = self.rows.value() or 0
        self.rows.update(before + 1)
        return [(ctx.get_current_key(), number, value.n, before, ctx.timestamp())]


@pytest.mark.parametrize("module", [harness_module, event_times])
def test_the_examples_of_docstrings_run(module: Any) -> None:
    """As a user would copy them."""
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


TIMES = st.one_of(st.none(), st.integers(-2, 2).map(lambda ms: datetime.fromtimestamp(1_000_000 + ms)))  # noqa: DTZ006  as rows have them
ROWS = st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), TIMES), max_size=30)


@settings(deadline=None)
@given(batches=st.lists(ROWS, max_size=4), sort_bytes=st.sampled_from([1, 2_000, 16 << 20]), second_time=st.booleans())
def test_rows_of_both_inputs_come_in_order(batches: list[list[Any]], sort_bytes: int, second_time: bool) -> None:
    """By event time, then the first input before the second, then in order of arrival; rows without time first; also if they are spilled."""
    second = replace(OTHER, event_time="when" if second_time else None)
    expected: dict[str, list[tuple[int, int]]] = {key: [] for key in "abc"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_harness, "_SORT_BYTES", sort_bytes)
        with KeyedTwoInputProcessHarness(Order(), FIRST, second, OUTPUT, key="user", event_time="at") as harness:
            number = 0
            for rows in batches:
                given_rows = []
                for of_second, key, time in rows:
                    given_rows.append((time if second_time or not of_second else None, of_second, key, number, time))
                    number += 1
                harness.process_elements(SECOND((n, key, time)) if two else (key, time, n) for _, two, key, n, time in given_rows)
                for _, two, key, n, _ in sorted(
                    given_rows, key=lambda row: (row[0] is not None, row[0], row[1]) if row[0] is not None else (False, None, row[1])
                ):
                    expected[key].append((1 + two, n))
            output = harness.get_output()
    for key, rows in expected.items():
        assert [(row.input, row.n) for row in output if row.user == key] == rows
        assert [row.before for row in output if row.user == key] == list(range(len(rows)))


class Echo(KeyedCoProcessFunction):
    """Emits key and row as they are read."""

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        yield "1", repr(ctx.get_current_key()), repr(tuple(value))

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        yield "2", repr(ctx.get_current_key()), repr(tuple(value))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["", "a\0b", "ß" * 300]),
        (pa.binary(), [b"", b"\0\0", b"x"]),
        (pa.bool_(), [True, False]),
        (pa.int64(), [0, -1, 2**63 - 1]),
        (pa.int8(), [0, -128]),
        (pa.date32(), [date(1, 1, 1), date(2026, 11, 22)]),
        (pa.timestamp("us", "Europe/Berlin"), [datetime(2026, 1, 1, 12)]),  # noqa: DTZ001  as functions get them
        (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("-1.50")]),
    ],
    ids=lambda each: str(each) if isinstance(each, pa.DataType) else "",
)
def test_rows_are_read_as_they_were_written(kind: pa.DataType, values: list[Any]) -> None:
    """Keys of every type from either input, nulls in other columns, nested columns; each input has columns of its own."""
    first = pa.schema([("k", kind), ("nested", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]))])
    second = SecondInput(pa.schema([("x", pa.float64()), ("y", pa.string()), ("key", kind)]), key="key")
    output = "input STRING, k STRING, value STRING"
    with KeyedTwoInputProcessHarness(Echo(), first, second, output, key="k") as harness:
        for value in values:
            harness.process_elements([(value, None), SECOND((0.0, None, value)), SECOND((None, "", value)), (value, (None, ["", None]))])
        found = harness.get_output()
    for value in values:
        mine = [(row.input, row.value) for row in found if row.k == repr(value)]
        of_first, of_second = ([text for number, text in mine if number == wanted] for wanted in "12")
        assert of_first[0] == repr((value, None))
        assert "b=['', None]" in of_first[1]
        assert of_second == [repr((0.0, None, value)), repr((None, "", value))]
    assert len(found) == 4 * len(values)


class Alarm(KeyedCoProcessFunction):
    """Sets a timer for each row."""

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value.n)

    process_element2 = process_element1

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        assert ctx.timestamp() == timestamp
        yield ctx.get_current_key(), 0, timestamp, ctx.timer_service().current_watermark(), 0


def fired(harness: KeyedTwoInputProcessHarness) -> list[tuple[int, int]]:
    found = [(row.n, row.before) for row in harness.get_output()]
    harness.clear_output()
    return found


def test_the_watermark_is_the_smaller_one() -> None:
    """There is none until both inputs have one; timers of rows of either input fire by it. Each survives a snapshot."""
    with KeyedTwoInputProcessHarness(Alarm(), FIRST, OTHER, OUTPUT, key="user", event_time="at") as harness:
        harness.process_element1(("ada", 10), 0)
        harness.process_element2((20, "ada"), 0)
        harness.process_watermark1(100)
        assert fired(harness) == []
        harness.process_watermark2(15)
        assert fired(harness) == [(10, 15)]
        harness.process_watermark1(200)
        assert fired(harness) == []
        with pytest.raises(InvalidInputError, match=r"watermark: a watermark never goes back\. Give at least 15"):
            harness.process_watermark2(14)
        snapshot = harness.snapshot()
    again = KeyedTwoInputProcessHarness(Alarm(), FIRST, OTHER, OUTPUT, key="user", event_time="at")
    again.restore(snapshot)
    with again:
        with pytest.raises(InvalidInputError, match=r"watermark: a watermark never goes back\. Give at least 200"):
            again.process_watermark1(199)
        again.process_watermark2(19)
        assert fired(again) == []
        assert again.snapshot() == replace(snapshot, watermark_ms=19, input_watermarks_ms=(200, 19))
        again.process_watermark2(300)
        assert fired(again) == [(20, 200)]


def test_a_second_input_that_is_new_has_no_watermark_yet() -> None:
    """It may begin below that of the snapshot, which the first input keeps; what the function saw does not go back."""
    with KeyedProcessHarness(Single(), FIRST, OUTPUT, key="user", event_time="at") as harness:
        harness.process_watermark(100)
        snapshot = harness.snapshot()
    again = KeyedTwoInputProcessHarness(Alarm(), FIRST, OTHER, OUTPUT, key="user", event_time="at")
    again.restore(snapshot)
    with again:
        again.process_watermark2(15)
        assert again.snapshot().watermark_ms == 100
        assert again.snapshot().input_watermarks_ms == (100, 15)
        with pytest.raises(InvalidInputError, match=r"watermark: a watermark never goes back\. Give at least 100"):
            again.process_watermark1(99)
        again.process_watermark1(200)
        assert again.snapshot().watermark_ms == 100
        again.process_watermark2(150)
        assert again.snapshot().watermark_ms == 150


def test_an_input_without_event_time_does_not_hold_the_watermark_back() -> None:
    """The other one decides alone; the input itself has no watermark."""
    second = replace(OTHER, event_time=None)
    with KeyedTwoInputProcessHarness(Alarm(), FIRST, second, OUTPUT, key="user", event_time="at") as harness:
        harness.process_element2((20, "ada", None))
        harness.process_watermark1(20)
        assert fired(harness) == [(20, 20)]
        with pytest.raises(InvalidInputError, match="watermark: input 2 has no event time"):
            harness.process_watermark2(20)
    untimed = KeyedTwoInputProcessHarness(Alarm(), FIRST, second, OUTPUT, key="user")
    with untimed, pytest.raises(InvalidInputError, match="has no event-time column"):
        untimed.process_element2((20, "ada", None))


class Tagged(CoMapFunction):
    """Counts the rows of a key over both inputs."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def _next(self) -> int:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return count

    def map1(self, value: Any) -> Any:
        return value.user, 1, value.n, self._next(), None

    def map2(self, value: Any) -> Any:
        return value.id, 2, value.n, self._next(), None


class OnlySecond(CoFlatMapFunction):
    """Emits rows of the second input twice."""

    def flat_map1(self, value: Any) -> None:
        return None

    def flat_map2(self, value: Any) -> Any:
        for _ in range(2):
            yield value.id, 2, value.n, None, None


def test_co_map_and_co_flat_map_functions() -> None:
    """Keyed state is shared by both inputs; a retry sees what the first run saw."""
    with KeyedTwoInputProcessHarness(Tagged(), FIRST, OTHER, OUTPUT, key="user") as harness:
        harness.process_element1(("ada", None, 7))
        harness.process_element2((8, "ada", None))
        harness.retry()
        assert [tuple(row)[:4] for row in harness.get_output()] == [("ada", 1, 7, 1), ("ada", 2, 8, 2)]
    with KeyedTwoInputProcessHarness(OnlySecond(), FIRST, OTHER, OUTPUT, key="user") as harness:
        harness.process_elements([("ada", None, 7), SECOND((8, "ada", None))])
        assert [tuple(row)[:3] for row in harness.get_output()] == [("ada", 2, 8)] * 2


class Even(CoMapFunction):
    """Skips odd numbers."""

    def map1(self, value: Any) -> Any:
        return (value.n,) if value.n % 2 == 0 else None

    def map2(self, value: Any) -> Any:
        return (-value.n,) if value.n % 2 == 0 else None


def test_a_co_map_function_skips_with_none() -> None:
    """As in PyFlink."""
    with KeyedTwoInputProcessHarness(Even(), FIRST, OTHER, "n BIGINT", key="user", event_time="at") as harness:
        for n in range(4):
            harness.process_element1(("ada", None, n))
            harness.process_element2((n, "ada", None))
        assert harness.get_output() == [(0,), (0,), (2,), (-2,)]


@pytest.mark.parametrize("wrong", [Tagged, lambda row: row, OnlySecond()])
def test_map_takes_nothing_but_a_co_map_function(wrong: Any) -> None:
    """A function of one row says nothing about the other input."""
    with pytest.raises(InvalidInputError, match=r"^map: expected a CoMapFunction, got .*a method for each input"):
        CoMapAdapter(wrong)
    with pytest.raises(InvalidInputError, match=r"^flat_map: expected a CoFlatMapFunction"):
        CoFlatMapAdapter(Tagged())  # type: ignore[arg-type]  # misuse


class Buffered(KeyedCoProcessFunction, CheckpointedFunction):
    """Keeps rows of both inputs in operator state, emits late ones to a side output."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("rows", Types.LONG()))
        self.rows = list(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.rows)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        self.rows.append(value.n)
        yield value.user, 1, len(self.rows), None, None

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        self.rows.append(value.n)
        yield LATE, (value.n,)


LATE = OutputTag("late", "n BIGINT")


def test_operator_state_side_outputs_and_a_restart_in_a_job_of_the_real_runtime() -> None:
    """`TestingJob` takes a second input; what one input put into operator state the other finds after the driver has died."""
    with TestingJob(Buffered(), FIRST, OUTPUT, key="user", second=OTHER, side_outputs=[LATE], parallelism=1) as job:
        output = job.run([("ada", None, 1), SECOND((2, "bob", None)), KILL_DRIVER, SECOND((3, "ada", None)), BATCH, ("bob", None, 4)])
        assert [row[:3] for row in output] == [("ada", 1, 1), ("bob", 1, 4)]
        assert job.get_side_output(LATE) == [(2,), (3,)]
        assert sorted(job.operator_state("rows")[0]) == [1, 2, 3, 4]
        with pytest.raises(InvalidInputError, match=r"items\[0\]|input_schema"):
            job.run([SECOND(("ada", None, 1))])
    single = TestingJob(Single(), FIRST, OUTPUT, key="user")
    with single, pytest.raises(InvalidInputError, match="SECOND: the step has one input"):
        single.run([SECOND((2, "bob", None))])


class Single(KeyedProcessFunction):
    """Has one input."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None: ...


STEP: dict[str, Any] = {
    "uid": "joined",
    "function": Order(),
    "input_schema": FIRST,
    "output_schema": pa.schema([("n", pa.int64())]),
    "key_columns": ("user",),
    "event_time": "at",
    "watermark_delay_ms": 0,
    "max_parallelism": 8,
    "second": OTHER.spec(),
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"function": Single()},
            "function: is Single, a KeyedProcessFunction, and the step has two inputs. Derive it from a KeyedCoProcessFunction",
        ),
        (
            {"second": None},
            "function: is Order, a KeyedCoProcessFunction, and the step has one input. Derive it from a KeyedProcessFunction",
        ),
        (
            {"second": replace(OTHER, key="n").spec()},
            "the key column 'user' of the first input is string, and 'n' of the second is int64. Cast one",
        ),
        ({"second": replace(OTHER, key=("id", "n")).spec()}, "connect: the key of the first input has 1 columns, and that of the second 2"),
        ({"second": replace(OTHER, event_time="n").spec()}, "event_time2: column 'n' is int64, and event_time1 is timestamp"),
        ({"second": replace(OTHER, key="no").spec()}, "key_columns: column 'no' does not exist. The input has: n, id, when"),
        ({"second": InputSpec(OTHER.spec().schema, ("id",), "when", -1)}, "watermark: -1 ms is negative"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(change: dict[str, Any], said: str) -> None:
    """Where the step is made, by name and with the remedy."""
    with pytest.raises(InvalidInputError) as refused:
        StepSpec(**{**STEP, **change})
    assert said in str(refused.value)


class Late(Order):
    """Calculates with a timestamp that may be None."""

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1)  # type: ignore[operator]  # the mistake


def test_calculating_without_an_event_time_is_explained() -> None:
    """The error names what each input needs."""
    second = replace(OTHER, event_time=None)
    harness = KeyedTwoInputProcessHarness(Late(), FIRST, second, OUTPUT, key="user", event_time="at")
    with harness, pytest.raises(UserFunctionError, match=r"ctx\.timestamp\(\) is None: pass event_time1 and event_time2"):
        harness.process_element2((1, "ada", None))
