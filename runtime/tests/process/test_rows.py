"""Input rows and Arrow columns as Python values."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import InvalidInputError
from statefulspark.process.rows.columns import check_representable, event_time_ms, max_event_time_ms, python_values
from statefulspark.process.rows.rows import row_class, rows_of


def test_a_row_is_read_by_attribute_position_and_name() -> None:
    """All three give the same value, also for names that tuples use themselves."""
    row_type = row_class(("tailnum", "count", "dep delay", "class", "_x"))
    row: Any
    (row,) = rows_of(row_type, [["N1"], [3], [4.5], ["c"], [7]])
    assert (row.tailnum, row.count, row["dep delay"], row["class"], row["_x"]) == ("N1", 3, 4.5, "c", 7)
    assert (row[0], row[-1], row[1:3]) == ("N1", 7, (3, 4.5))
    assert row == ("N1", 3, 4.5, "c", 7)
    assert row._fields == ("tailnum", "count", "dep delay", "class", "_x")
    assert row.as_dict() == {"tailnum": "N1", "count": 3, "dep delay": 4.5, "class": "c", "_x": 7}
    assert row.asDict() == row.as_dict()
    assert repr(row) == "Row(tailnum='N1', count=3, dep delay=4.5, class='c', _x=7)"


def test_columns_named_as_methods_are_read_by_name() -> None:
    """The methods stay what they are for every schema."""
    (row,) = rows_of(row_class(("asDict", "as_dict")), [[1], [2]])
    assert (row["asDict"], row["as_dict"]) == (1, 2)
    assert row.asDict() == row.as_dict() == {"asDict": 1, "as_dict": 2}


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    """A typing mistake is answered with the columns of the row."""
    (row,) = rows_of(row_class(("tailnum", "legs")), [["N1"], [3]])
    with pytest.raises(KeyError, match="tailnum, legs"):
        _ = row["tail"]
    with pytest.raises(AttributeError):
        _ = row.tail


def test_rows_survive_pickle_as_the_same_class() -> None:
    """A row put into state comes back with its columns."""
    (row,) = rows_of(row_class(("a", "b")), [[1], [[2, 3]]])
    again = pickle.loads(pickle.dumps(row))
    assert again == row
    assert type(again) is type(row)
    assert again.b == [2, 3]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1, None, -(1 << 63)]),
        (pa.int64(), [1, 2, (1 << 63) - 1]),
        (pa.float64(), [1.5, None, float("inf")]),
        (pa.bool_(), [True, False, True]),
        (pa.bool_(), [True, None]),
        (pa.string(), ["a", None, ""]),
        (pa.binary(), [b"a", None]),
        (pa.date32(), [date(2013, 1, 1), None]),
        (pa.decimal128(10, 2), [Decimal("1.25"), None]),
        (pa.timestamp("us"), [datetime(2013, 1, 1, 5, 15, 0, 7), None, datetime(1900, 1, 1)]),  # noqa: DTZ001  # without a zone on purpose
        (pa.list_(pa.int64()), [[1, None], None, []]),
    ],
)
def test_values_are_those_of_python(kind: pa.DataType, values: list[Any]) -> None:
    """Each column type gives the Python values it was made of, of exactly the same types."""
    found = python_values(pa.array(values, kind))
    assert found == values
    assert [type(each) for each in found] == [type(each) for each in values]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+00:00"])
def test_points_in_time_are_datetimes_in_utc(zone: str) -> None:
    """The session's time zone must not change what a function sees."""
    aware = datetime(2013, 7, 1, 12, 0, 0, 5, tzinfo=UTC)
    naive = datetime(2013, 7, 1, 12, 0, 0, 5)  # noqa: DTZ001  # without a zone on purpose
    assert python_values(pa.array([aware, None], pa.timestamp("us", zone))) == [naive, None]
    nested = python_values(pa.array([[aware, None]], pa.list_(pa.timestamp("us", zone))))
    assert nested == [[naive, None]]


LAST_US = 253_402_300_799_999_999
FIRST_US = -62_135_596_800_000_000


def _at_every_depth(column: pa.Array) -> Iterator[tuple[pa.Array, Callable[[Any], Any]]]:
    """A column, alone and within other types, and what takes its first value out of the Python value."""
    one = pa.array([0, 1], pa.int32())
    yield column, lambda value: value
    yield pa.ListArray.from_arrays(one, column), lambda value: value[0]
    yield pa.StructArray.from_arrays([column], ["t"]), lambda value: value.t
    yield pa.MapArray.from_arrays(one, ["a"], column), lambda value: value["a"]
    yield pa.MapArray.from_arrays(one, column, ["a"]), lambda value: next(iter(value))
    inner = pa.StructArray.from_arrays([pa.FixedSizeListArray.from_arrays(column, 1)], ["t"])
    yield pa.ListArray.from_arrays(one, inner), lambda value: value[0].t[0]


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("micros", [FIRST_US, FIRST_US + 1, 0, LAST_US - 86_400_000_000, LAST_US])
def test_times_of_the_years_1_to_9999_come_through_at_every_depth(micros: int, zone: str | None) -> None:
    """Also the sentinels 0001-01-01 and 9999-12-31, which do not exist in the session's zone."""
    expected = datetime(1970, 1, 1) + timedelta(microseconds=micros)  # noqa: DTZ001  without a zone on purpose
    for column, value in _at_every_depth(pa.array([micros], pa.int64()).cast(pa.timestamp("us", zone))):
        (found,) = python_values(column)
        assert value(found) == expected


@pytest.mark.parametrize(
    "column",
    [
        *(
            pa.array([micros], pa.int64()).cast(pa.timestamp("us", zone))
            for micros in (FIRST_US - 1, LAST_US + 1)
            for zone in (None, "UTC", "Asia/Tokyo")
        ),
        pa.array([2_932_897], pa.int32()).cast(pa.date32()),
        pa.array([-719_163], pa.int32()).cast(pa.date32()),
    ],
)
def test_other_times_are_refused_at_every_depth(column: pa.Array) -> None:
    """The error names the column and the remedy."""
    for each, _ in _at_every_depth(column):
        with pytest.raises(
            InvalidInputError, match=r"^column 'at': has a date or time outside the years 1 to 9999 in UTC.* Filter such rows"
        ):
            python_values(each, "at")


def test_text_that_is_not_utf8_is_refused() -> None:
    """Spark's strings are bytes that nobody has checked."""
    column = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with pytest.raises(InvalidInputError, match=r"^column 'name': has text that is not UTF-8"):
        python_values(column, "name")


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        (pa.map_(pa.string(), pa.list_(pa.int32())), False),
        (pa.map_(pa.struct([("a", pa.int32())]), pa.int32()), False),
        (pa.map_(pa.list_(pa.int32()), pa.int32()), True),
        (pa.map_(pa.struct([("a", pa.list_(pa.int32()))]), pa.int32()), True),
        (pa.list_(pa.struct([("m", pa.map_(pa.list_(pa.int32()), pa.int32()))])), True),
    ],
)
def test_maps_with_keys_that_python_cannot_hash_are_refused_with_the_step(kind: pa.DataType, refused: bool) -> None:
    """Not in the middle of a batch."""
    expected = pytest.raises(InvalidInputError, match=r"column 'm' has a map whose keys.*map_entries") if refused else nullcontext()
    with expected:
        check_representable(kind, "m")


def test_structs_are_rows_and_maps_are_dicts() -> None:
    """Nested data reads like the outer row."""
    kind = pa.struct([("leg", pa.struct([("origin", pa.string()), ("count", pa.int32())])), ("tags", pa.map_(pa.string(), pa.int64()))])
    column = pa.array([{"leg": {"origin": "JFK", "count": 2}, "tags": [("x", 1)]}, None, {"leg": None, "tags": None}], kind)
    first, second, third = python_values(column)
    assert (first.leg.origin, first.leg.count, first.tags) == ("JFK", 2, {"x": 1})
    assert second is None
    assert (third.leg, third.tags) == (None, None)
    assert first.asDict(True) == first.as_dict(recursive=True) == {"leg": {"origin": "JFK", "count": 2}, "tags": {"x": 1}}
    (many,) = python_values(pa.array([[{"leg": None, "tags": None}]], pa.list_(kind)))
    assert many[0].leg is None


@given(micros=st.lists(st.one_of(st.none(), st.integers(-(10**15), 10**15)), min_size=1), unit=st.sampled_from(["us", "ms", "s", "ns"]))
def test_event_time_is_milliseconds_rounded_down(micros: list[int | None], unit: str) -> None:
    """Rounding down keeps times before 1970 in order; nulls stay None and never count as latest."""
    per_ms = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    column = pa.array(micros, pa.int64()).cast(pa.timestamp(unit))
    wanted = [None if each is None else (each * 1000 if unit == "s" else each // int(per_ms)) for each in micros]
    assert event_time_ms(column) == wanted
    assert max_event_time_ms(column) == max((each for each in wanted if each is not None), default=None)


def test_a_bigint_is_milliseconds_already() -> None:
    """PyFlink style timestamps need no conversion."""
    column = pa.array([5, None, -3], pa.int64())
    assert event_time_ms(column) == [5, None, -3]
    assert max_event_time_ms(column) == 5
