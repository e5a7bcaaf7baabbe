"""Map, flat-map, filter and reduce functions on keyed streams: what they emit, what they keep, and what survives failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statefulspark import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    Row,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)
from statefulspark.errors import InvalidInputError, NotRestorableError
from statefulspark.process.adapters.function_adapters import AnyKeyedFunction, FilterAdapter, FlatMapAdapter, MapAdapter, ReduceAdapter
from statefulspark.process.adapters.rolling_aggregations import Aggregation, RollingAggregation
from statefulspark.process.rows.row_types import row_type_info
from statefulspark.testing import (
    BATCH,
    CHECKPOINT,
    KILL_DRIVER,
    KILL_SLOT,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RETRY_BATCH,
    SAVEPOINT,
    UPGRADE,
    KeyedProcessHarness,
    TestingJob,
)

ORDERS = pa.schema({"user": pa.string(), "item": pa.string(), "price": pa.float64()})
AGGREGATIONS: tuple[Aggregation, ...] = ("sum", "min", "max", "min_by", "max_by")
NAN = math.nan


def emitted(function: KeyedProcessFunction, rows: Iterable[Any], output: pa.Schema = ORDERS, columns: pa.Schema = ORDERS) -> list[Any]:
    """What the function emits for rows of one batch each."""
    with KeyedProcessHarness(function, columns, output, key=columns.names[0]) as harness:
        for row in rows:
            harness.process_element(row)
        return [tuple(row) for row in harness.get_output()]


def aggregation(kind: Aggregation, column: int | str = "price", schema: pa.Schema = ORDERS) -> ReduceAdapter:
    function = RollingAggregation(kind, schema, column)
    return ReduceAdapter(function, schema, state_name=function.state_name)


class Numbered(MapFunction):
    """Numbers the rows of a user, in keyed state; notes that it was opened and closed."""

    closed: list[str] = []  # noqa: RUF012  # shared by the copies in slots

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def map(self, value: Any) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        return value.user, self.number.value()

    def close(self) -> None:
        self.closed.append("closed")


class Letters(FlatMapFunction):
    """Emits the letters of an item."""

    def flat_map(self, value: Any) -> Iterator[str]:
        yield from value.item


class First(FilterFunction):
    """Keeps the first row of each user."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value: Any) -> bool:
        seen = self.seen.value()
        self.seen.update(True)
        return not seen


class Dearest(ReduceFunction[Any]):
    """Keeps the row with the highest price."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value2 if value2.price > value1.price else value1


A, B, C = ("ada", "ab", 1.0), ("bob", "", 5.0), ("ada", "c", 3.0)


def test_map_emits_one_row_for_each() -> None:
    """A function may keep state and is closed in the end; a lambda may return any form of a row."""
    output = pa.schema({"user": pa.string(), "number": pa.int64()})
    Numbered.closed.clear()
    assert emitted(MapAdapter(Numbered()), [A, B, C], output) == [("ada", 1), ("bob", 1), ("ada", 2)]
    assert Numbered.closed == ["closed"]
    assert emitted(MapAdapter(lambda row: {"number": 1, "user": row.user}), [A], output) == [("ada", 1)]
    assert emitted(MapAdapter(lambda row: Row(number=2, user=row["user"])), [A], output) == [("ada", 2)]
    assert emitted(MapAdapter(lambda row: row[2] * 2), [A, B], pa.schema({"double": pa.float64()})) == [(2.0,), (10.0,)]


def test_flat_map_emits_any_number_of_rows() -> None:
    """A generator, an iterable, or None for nothing."""
    letter = pa.schema({"letter": pa.string()})
    assert emitted(FlatMapAdapter(Letters()), [A, B, C], letter) == [("a",), ("b",), ("c",)]
    assert emitted(FlatMapAdapter(lambda row: [row.item] * 2 if row.item else None), [A, B], letter) == [("ab",), ("ab",)]
    with pytest.raises(InvalidInputError, match="return a list of them"):
        emitted(FlatMapAdapter(lambda row: row.item), [A], letter)


def test_filter_keeps_rows_as_they_are() -> None:
    """A function may keep state; what a lambda returns counts by its truth."""
    assert emitted(FilterAdapter(First()), [A, B, C]) == [A, B]
    assert emitted(FilterAdapter(lambda row: row.item), [A, B, C]) == [A, C]


def test_reduce_emits_each_new_value() -> None:
    """The first row of a key as it is, then what it was combined to."""
    assert emitted(ReduceAdapter(Dearest(), ORDERS), [A, B, C, A]) == [A, B, C, C]
    assert emitted(ReduceAdapter(lambda a, b: (a.user, a["item"] + b.item, a[2] + b[2]), ORDERS), [A, B, C, A]) == [
        A,
        B,
        ("ada", "abc", 4.0),
        ("ada", "abcab", 5.0),
    ]


class Turned(NamedTuple):
    """A row by name, in another order."""

    price: float
    item: str
    user: str


def changed(row: Any, price: float) -> Any:
    row["price"] = price
    return row


@pytest.mark.parametrize(
    "func",
    [
        lambda a, b: {"price": a.price + b.price, "user": a.user, "item": a.item},
        lambda a, b: Row(price=a.price + b.price, user=a.user, item=a.item),
        lambda a, b: Turned(a.price + b.price, a.item, a.user),
        lambda a, b: [a.user, a.item, a.price + b.price],
        lambda a, b: changed(a, a.price + b.price),
    ],
)
def test_reduce_takes_every_form_of_a_row(func: Callable[[Any, Any], Any]) -> None:
    """What is emitted and what the next call gets are the same, also if the first row is changed in place."""
    assert emitted(ReduceAdapter(func, ORDERS), [A, A, A, A])[1:] == [("ada", "ab", 2.0), ("ada", "ab", 3.0), ("ada", "ab", 4.0)]


@pytest.mark.parametrize(
    ("func", "says"),
    [(lambda a, b: 5, "an int as a row of 3 columns"), (lambda a, b: a[:2], "expected 3 values"), (lambda a, b: {"user": ""}, "'item'")],
)
def test_reduce_refuses_another_row(func: Callable[[Any, Any], Any], says: str) -> None:
    """What does not have the stream's columns fails the batch, and state stays as it was."""
    with KeyedProcessHarness(ReduceAdapter(func, ORDERS), ORDERS, ORDERS, key="user") as harness:
        harness.process_element(A)
        before = harness.snapshot()
        with pytest.raises(InvalidInputError, match=says):
            harness.process_element(A)
        assert harness.snapshot() == before


Price = float | None
PRICES: st.SearchStrategy[Price] = st.none() | st.sampled_from([0.0, -0.0, 1.5, -2.0, 1e300]) | st.just(NAN)
EVENTS = st.lists(st.tuples(st.sampled_from("ab"), st.text("xy", max_size=1), PRICES) | st.sampled_from(["restore", "retry"]), max_size=12)


def expected(kind: Aggregation, rows: list[tuple[str, str, Price]]) -> tuple[Any, ...]:
    """The aggregate of all rows of one key, worked out anew from all of them."""
    present = [price for _, _, price in rows if price is not None]
    if not present:
        return rows[0]
    # Spark's order: NaN is greater than the rest.
    rank = [(math.isnan(price), 0.0 if math.isnan(price) else price) for price in present]
    if kind == "sum":
        total = present[0]
        for price in present[1:]:
            total += price
        return (*rows[0][:2], total)
    best = min(rank) if kind.startswith("min") else max(rank)
    chosen = present[rank.index(best)]
    if kind.endswith("_by"):
        return next(row for row in rows if row[2] is not None and (math.isnan(row[2]), 0.0 if math.isnan(row[2]) else row[2]) == best)
    return (*rows[0][:2], chosen)


@settings(deadline=None)
@given(st.sampled_from(AGGREGATIONS), EVENTS)
def test_aggregations_against_a_model(kind: Aggregation, events: list[Any]) -> None:
    """Nulls, NaN, signed zeros and equal values; state is restored into a new function, and batches run again, at any point."""
    seen: dict[str, list[tuple[str, str, Price]]] = {}
    harness = KeyedProcessHarness(aggregation(kind), ORDERS, ORDERS, key="user")
    harness.open()
    last = None
    for event in events:
        if event == "retry":
            if last is not None:
                harness.retry()
        elif event == "restore":
            snapshot = harness.snapshot()
            harness.close()
            harness = KeyedProcessHarness(aggregation(kind), ORDERS, ORDERS, key="user")
            harness.restore(snapshot)
            harness.open()
            last = None
            continue
        else:
            harness.process_element(event)
            seen.setdefault(event[0], []).append(event)
            last = event[0]
        if last is not None:
            assert repr(tuple(harness.get_output()[-1])) == repr(expected(kind, seen[last]))
    harness.close()


def total_of(row: Any) -> Any:
    return row.user, row.item, row.price + 1.0


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_state_survives_failures_and_rescaling(backend: Literal["memory", "rocksdb"]) -> None:
    """Each row counts once through kills, retries, checkpoints, another parallelism and a savepoint."""
    one = ("ada", "", 1.0), ("bob", "", 10.0)
    items = [
        *one, CHECKPOINT, *one, KILL_SLOT(0), *one, RESCALE(3), *one, RETRY_BATCH, *one, KILL_DRIVER, *one, SAVEPOINT, *one, RESTORE_FROM_SAVEPOINT(),
        *one, RESCALE(1), *one,
    ]  # fmt: skip
    with TestingJob(aggregation("sum"), ORDERS, ORDERS, key="user", backend=backend) as job:
        job.run(items)
        assert {key: value["price"] for key, value in job.state("_sum(price)").items()} == {"ada": 9.0, "bob": 90.0}


def test_harnesses_take_the_functions_themselves() -> None:
    """A user's test needs no adapter, also for new code on the state of the old."""
    number = pa.schema({"user": pa.string(), "number": pa.int64()})
    letter = pa.schema({"letter": pa.string()})
    tested: list[tuple[AnyKeyedFunction, pa.Schema, list[Any]]] = [
        (Numbered(), number, [("ada", 1), ("bob", 1), ("ada", 2)]),
        (Letters(), letter, [("a",), ("b",), ("c",)]),
        (First(), ORDERS, [A, B]),
        (Dearest(), ORDERS, [A, B, C]),
    ]
    for function, output, rows in tested:
        with KeyedProcessHarness(function, ORDERS, output, key="user") as harness:
            harness.process_elements([A, B])
            harness.process_elements([C])
            harness.retry()
            assert [tuple(row) for row in harness.get_output()] == rows
    with TestingJob(Dearest(), ORDERS, ORDERS, key="user") as job:
        assert job.run([C, BATCH, A, UPGRADE(Dearest()), A, B]) == [C, C, C, B]


def restored(before: KeyedProcessFunction, after: KeyedProcessFunction, columns: pa.Schema = ORDERS, row: Any = C) -> list[Any]:
    """Run one row through each function, the second on the state of the first."""
    with KeyedProcessHarness(before, ORDERS, ORDERS, key="user") as harness:
        harness.process_element(A)
        snapshot = harness.snapshot()
    harness = KeyedProcessHarness(after, columns, columns, key="user")
    harness.restore(snapshot)
    with harness:
        harness.process_element(row)
        return [tuple(row) for row in harness.get_output()]


def test_state_is_found_again_by_kind_and_column() -> None:
    """Another function for reduce and a column by position or name continue; another kind or column would start empty and is refused."""
    assert restored(aggregation("sum", 2), aggregation("sum", "price")) == [("ada", "ab", 4.0)]
    assert restored(aggregation("sum", -1), aggregation("sum", "price")) == [("ada", "ab", 4.0)]
    assert restored(ReduceAdapter(lambda a, b: a, ORDERS), ReduceAdapter(Dearest(), ORDERS)) == [C]
    for other in (aggregation("max"), aggregation("max_by"), ReduceAdapter(Dearest(), ORDERS)):
        with pytest.raises(NotRestorableError, match=r"_sum\(price\)"):
            restored(aggregation("sum"), other)
    with pytest.raises(NotRestorableError, match=r"_min\(item\)"):
        restored(aggregation("min", "price"), aggregation("min", "item"))


def test_state_needs_the_columns_it_was_written_with() -> None:
    """Wider, added and removed columns keep the state; one of another kind is refused with both types."""
    same = pa.schema({"user": pa.string(), "item": pa.string(), "price": pa.float32()})
    assert restored(aggregation("sum"), aggregation("sum", schema=same), same) == [("ada", "ab", 4.0)]
    wide = ORDERS.append(pa.field("more", pa.string()))
    assert restored(aggregation("sum"), aggregation("sum", schema=wide), wide, ("ada", "cd", 3.0, "new")) == [("ada", "ab", 4.0, None)]
    numbers = pa.schema({"user": pa.string(), "item": pa.int64(), "price": pa.float64()})
    with pytest.raises(NotRestorableError, match=r"item +STRING +item +LONG +of another kind"):
        restored(aggregation("sum"), aggregation("sum", schema=numbers), numbers, ("ada", 1, 3.0))


ALL = pa.schema(
    {
        "key": pa.string(), "flag": pa.bool_(), "small": pa.int8(), "exact": pa.decimal128(10, 2), "bytes": pa.binary(), "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "took": pa.duration("us"), "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int32()), "nested": pa.struct({"n": pa.int64(), "inner": pa.struct({"x": pa.float32()})}),
    }
)  # fmt: skip
FULL = (
    "k", False, -7, Decimal("1.50"), b"\0\xff", date(2026, 2, 28), datetime(2026, 1, 2, 3, 4, 5, 6), datetime(1969, 1, 1),  # noqa: DTZ001
    timedelta(seconds=-1), ["", None, "\u00e4"], {"a": 0, "": None}, Row(n=0, inner=Row(x=0.5)),
)  # fmt: skip
EMPTY = ("k", *(None,) * (len(FULL) - 1))


@pytest.mark.parametrize("row", [FULL, EMPTY], ids=["full", "nulls"])
def test_every_type_of_column_is_kept(row: tuple[Any, ...]) -> None:
    """A row that was kept in state comes out as it came in, type included."""
    first, second = emitted(ReduceAdapter(lambda a, b: a, ALL), [row, EMPTY], ALL, ALL)
    assert repr(first) == repr(second)
    assert second[:-1] == row[:-1]
    names = row_type_info(ALL).get_field_names()
    assert names == ALL.names


@pytest.mark.parametrize(
    ("kind", "column", "says"),
    [
        ("sum", "item", "'item' of type string has no sum"),
        ("sum", "flag", "'flag' of type bool has no sum"),
        ("max", "tags", "have no order"),
        ("min_by", "counts", "have no order"),
        ("min", "missing", "does not exist; the columns are item, flag"),
        ("max", 4, "4 is not a position in 4 columns"),
        ("max", -5, "-5 is not a position in 4 columns"),
        ("sum", True, "expected a str or an int, got bool"),
        ("sum", 1.5, "expected a str or an int, got float"),
    ],
)
def test_columns_that_cannot_be_aggregated_are_refused(kind: Aggregation, column: Any, says: str) -> None:
    """The text begins with PyFlink's name of the argument."""
    columns = pa.schema(
        {"item": pa.string(), "flag": pa.bool_(), "tags": pa.list_(pa.string()), "counts": pa.map_(pa.string(), pa.int32())}
    )
    with pytest.raises(InvalidInputError, match=f"^position_to_{kind}: .*{says}"):
        RollingAggregation(kind, columns, column)


def test_a_column_whose_name_is_no_state_name_is_refused() -> None:
    """State names have at most 255 bytes."""
    with pytest.raises(InvalidInputError, match="too long"):
        RollingAggregation("sum", pa.schema({"\u00e4" * 126: pa.int64()}), 0)


def test_a_sum_that_its_column_cannot_hold_is_refused() -> None:
    """The batch fails instead of wrapping around."""
    columns = pa.schema({"key": pa.string(), "n": pa.int8()})
    with pytest.raises(InvalidInputError, match="'n' of type int8"):
        emitted(aggregation("sum", "n", columns), [("k", 100), ("k", 100)], columns, columns)


@pytest.mark.parametrize(
    ("adapter", "func", "says"),
    [
        (
            MapAdapter,
            Numbered,
            "^map: expected a MapFunction or a function, got the class Numbered. Pass an instance of a MapFunction, or a function of one row",
        ),
        (MapAdapter, Letters(), "^map: expected a MapFunction or a function, got Letters"),
        (FlatMapAdapter, 5, "^flat_map: expected a FlatMapFunction or a function, got int"),
        (FilterAdapter, None, "^filter: expected a FilterFunction or a function, got NoneType"),
        (lambda func: ReduceAdapter(func, ORDERS), Dearest, "^reduce: .* Pass an instance of a ReduceFunction, or a function of two rows"),
    ],
)
def test_what_is_no_function_is_refused(adapter: Callable[[Any], Any], func: Any, says: str) -> None:
    """A class in place of its instance, too, which Python would call."""
    with pytest.raises(InvalidInputError, match=says):
        adapter(func)
