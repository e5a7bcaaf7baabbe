"""Aggregates of keyed streams in the harness, against a computation with plain Python values."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples

from statefulspark import Aggregate, count, last, max_, max_by, min_, min_by, sum_
from statefulspark.errors import InvalidInputError
from statefulspark.process.batches.running_aggregates import RunningAggregates
from statefulspark.testing import CHECKPOINT, KILL_SLOT, RESCALE, KeyedProcessHarness, TestingJob

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(1 << 40), 1 << 40) | st.sampled_from([1 << 62, -(1 << 62)])),
    "short": (pa.int16(), st.integers(-(1 << 15), (1 << 15) - 1)),
    "double": (pa.float64(), st.integers(-1000, 1000).map(lambda n: n / 4) | st.sampled_from([math.nan, math.inf, 0.0])),
    "float": (pa.float32(), st.integers(-1000, 1000).map(lambda n: n / 4)),
    "decimal": (pa.decimal128(10, 2), st.decimals(-99_999_999, 99_999_999, places=2)),
    "text": (pa.string(), st.sampled_from(["", "a", "b", "ä", "aa", "Z"])),
    "bytes": (pa.binary(), st.binary(max_size=2)),
    "flag": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "at": (pa.timestamp("us"), st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))),  # noqa: DTZ001
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 5), max_size=2)),
}


def order(value: Any) -> Any:
    """Sort NaN above all numbers."""
    return (value != value, 0 if value != value else value)  # noqa: PLR0124


def summed(values: list[Any]) -> Any:
    """The sum of what is not null."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def chosen(values: list[Any], by: list[Any], least: bool) -> Any:
    """The value at the least or greatest of the others, the last one of equal ones."""
    best: Any = None
    for place, each in enumerate(by):
        if each is None:
            continue
        if best is None or order(each) == order(by[best]) or (order(each) < order(by[best])) is least:
            best = place
    return None if best is None else values[best]


MODELS: dict[str, Callable[..., Any]] = {
    "count": lambda rows, values=None: len(rows) if values is None else len([value for value in values if value is not None]),
    "sum_": lambda _, values: summed(values),
    "min_": lambda _, values: chosen(values, values, True),
    "max_": lambda _, values: chosen(values, values, False),
    "last": lambda _, values: values[-1],
    "min_by": lambda _, values, by: chosen(values, by, True),
    "max_by": lambda _, values, by: chosen(values, by, False),
}


def same(one: Any, other: Any) -> bool:
    """Equal, and NaN equals itself."""
    return len(one) == len(other) and all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))  # noqa: PLR0124


@settings(deadline=None, max_examples=examples(40, 500))
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), by=st.sampled_from(sorted(set(KINDS) - {"list"})))
def test_aggregates_are_those_of_plain_values(data: st.DataObject, kind: str, by: str) -> None:
    """Of all rows of a key so far, one row per key and batch; with nulls, and again after the state was restored."""
    schema = pa.schema({"key": pa.string(), "v": KINDS[kind][0], "b": KINDS[by][0]})
    aggregates = {"n": count(), "known": count("v"), "final": last("v"), "top": max_by("v", "b"), "bottom": min_by("v", "b")}
    if kind in {"short", "double", "float", "decimal"}:
        aggregates["total"] = sum_("v")
    if kind != "list":
        aggregates |= {"low": min_("v"), "high": max_("v"), "again": max_("v")}
    row = st.tuples(st.sampled_from("abc"), st.none() | KINDS[kind][1], st.none() | KINDS[by][1])
    batches = data.draw(st.lists(st.lists(row, max_size=12), max_size=4))
    seen: dict[str, list[Any]] = {}
    snapshot = None
    for batch in batches:
        function = RunningAggregates(aggregates, schema, ["key"])
        harness = KeyedProcessHarness(function, schema, function.output_schema, key="key")
        if snapshot is not None:
            harness.restore(snapshot)
        with harness:
            harness.process_elements(batch)
            output = harness.get_output()
            snapshot = harness.snapshot()
        for each in batch:
            seen.setdefault(each[0], []).append(each)
        assert sorted(row.key for row in output) == sorted({each[0] for each in batch})
        for found in output:
            rows = seen[found.key]
            for name, aggregate in aggregates.items():
                columns = [[each[schema.names.index(column)] for each in rows] for column in aggregate.columns]
                wanted = MODELS[aggregate.kind](rows, *columns)
                assert same([found[name]], [wanted]), (name, wanted, found[name])


def run(aggregate: Aggregate, kind: pa.DataType, *batches: list[Any]) -> list[Any]:
    """The results of one key."""
    schema = pa.schema({"key": pa.int64(), "v": kind})
    function = RunningAggregates({"result": aggregate}, schema, ["key"])
    with KeyedProcessHarness(function, schema, function.output_schema, key="key") as harness:
        for values in batches:
            harness.process_elements([(1, value) for value in values])
        return [row.result for row in harness.get_output()]


@pytest.mark.parametrize(
    ("kind", "fits", "too_much"),
    [
        (pa.int64(), [(1 << 63) - 1, -1, 1], [(1 << 63) - 1, 1]),
        (pa.int64(), [-(1 << 63), 1 << 62, -(1 << 62)], [-(1 << 63), -1]),
        (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(-5)], [Decimal(10**38 - 1), Decimal(1)]),
    ],
)
def test_a_sum_that_does_not_fit_fails_the_batch(kind: pa.DataType, fits: list[Any], too_much: list[Any]) -> None:
    """It is not wrapped, also if it comes together over batches; sums at the bounds are exact."""
    wanted = sum(int(value) for value in fits)
    assert run(sum_("v"), kind, fits) == [wanted]
    assert run(sum_("v"), kind, *([value] for value in fits))[-1] == wanted
    for batches in ([too_much], [[value] for value in too_much]):
        with pytest.raises(InvalidInputError, match=r"uid 'harness': result: the sum of column 'v' of a key does not fit"):
            run(sum_("v"), kind, *batches)


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (sum_("w"), "result: column 'w' does not exist; the columns are key, v, text, parts. Correct the name"),
        (sum_("text"), "result: column 'text' of type string has no sum. Name a column of numbers, or cast it"),
        (max_("parts"), "result: values of column 'parts' of type list<item: int64> have no order"),
        (max_by("v", "parts"), "have no order. Name another column"),
        ("count", "result: expected an aggregate, got a str. Use the functions of statefulspark"),
        (last("v" * 300), "does not exist"),
    ],
)
def test_aggregates_that_do_not_fit_are_refused(aggregate: Any, message: str) -> None:
    """By the output column, when the step is built."""
    schema = pa.schema({"key": pa.int64(), "v": pa.int64(), "text": pa.string(), "parts": pa.list_(pa.int64())})
    with pytest.raises(InvalidInputError) as caught:
        RunningAggregates({"result": aggregate}, schema, ["key"])
    assert message in str(caught.value)


def test_output_columns_have_distinct_names() -> None:
    """Also from those of the key, and for Spark, which ignores case."""
    schema = pa.schema({"key": pa.int64()})
    with pytest.raises(InvalidInputError, match="Key: the output has another column of this name"):
        RunningAggregates({"Key": count()}, schema, ["key"])
    with pytest.raises(InvalidInputError, match="there is no aggregate"):
        RunningAggregates({}, schema, ["key"])


def test_aggregates_survive_failures() -> None:
    """A killed slot and another parallelism change nothing; several key columns come first."""
    schema = pa.schema({"a": pa.string(), "b": pa.int64(), "v": pa.int64()})
    function = RunningAggregates({"n": count(), "total": sum_("v"), "top": max_by("v", "v")}, schema, ["a", "b"])
    rows = [(f"k{number % 4}", number % 3, number) for number in range(24)]
    with TestingJob(function, schema, function.output_schema, key=["a", "b"], backend="rocksdb") as job:
        output = job.run([*rows[:8], KILL_SLOT(0), *rows[8:16], CHECKPOINT, RESCALE(3), KILL_SLOT(1), *rows[16:]])
    for (a, b), values in {(each[0], each[1]): [v for x, y, v in rows if (x, y) == each[:2]] for each in rows}.items():
        assert (a, b, len(values), sum(values), max(values)) in output
    assert len(output) == sum(len({each[:2] for each in batch}) for batch in (rows[:8], rows[8:16], rows[16:]))
