"""Output rows as record batches of the declared schema."""

from __future__ import annotations

import re
from collections import namedtuple
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark.sql
import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.process.output.output import OutputSchema
from statefulspark.process.rows.rows import row_class, rows_of
from statefulspark.state.row import Row, RowKind

TWO = pa.schema([("tailnum", pa.string()), ("legs", pa.int64())])
PYSPARK_ROW: Any = pyspark.sql.Row
LEG = Row("legs", "tailnum")
Leg = namedtuple("Leg", "legs tailnum")  # noqa: PYI024  # the plain form is what is tested


def rows_in(schema: pa.Schema, *rows: Any) -> list[dict[str, Any]]:
    batch = OutputSchema(schema, "the step 'u'").batch(list(rows))
    assert batch.schema == schema
    result: list[dict[str, Any]] = batch.to_pylist()
    return result


def test_every_form_of_a_row_is_taken() -> None:
    """By position: tuples, lists, unnamed Rows. By name, in any order: Rows, dicts, named tuples, pyspark Rows, input rows."""
    (given,) = rows_of(row_class(("legs", "tailnum")), [[1], ["N1"]])
    forms = [
        ("N1", 1),
        ["N1", 1],
        Row("N1", 1),
        Row(tailnum="N1", legs=1),
        LEG(1, "N1"),
        {"legs": 1, "tailnum": "N1"},
        Leg(1, "N1"),
        pyspark.sql.Row(legs=1, tailnum="N1"),
        PYSPARK_ROW("N1", 1),
        given,
    ]
    assert rows_in(TWO, *forms) == [{"tailnum": "N1", "legs": 1}] * len(forms)
    assert rows_in(TWO, ("N1", None)) == [{"tailnum": "N1", "legs": None}]


def test_one_column_takes_bare_values() -> None:
    """A schema of one column needs no tuples; what could be either is the value."""
    assert rows_in(pa.schema([("n", pa.int64())]), 1, (2,), None, {"n": 4}, [5]) == [{"n": n} for n in (1, 2, None, 4, 5)]
    assert rows_in(pa.schema([("l", pa.list_(pa.int64()))]), [1, 2], ([3],)) == [{"l": [1, 2]}, {"l": [3]}]
    assert rows_in(pa.schema([("m", pa.map_(pa.string(), pa.int64()))]), {"x": 1}) == [{"m": [("x", 1)]}]


def test_values_become_the_columns_types() -> None:
    """Numbers widen, datetimes are UTC unless they say otherwise, numpy scalars are numbers."""
    schema = pa.schema(
        [("d", pa.float64()), ("t", pa.timestamp("us", "UTC")), ("m", pa.decimal128(10, 2)), ("b", pa.binary()), ("i", pa.int32())]
    )
    (row,) = rows_in(schema, (3, datetime(2013, 1, 1), 2, bytearray(b"x"), np.int64(5)))  # noqa: DTZ001  # without a zone on purpose
    assert row == {"d": 3.0, "t": datetime(2013, 1, 1, tzinfo=UTC), "m": Decimal("2.00"), "b": b"x", "i": 5}


def test_nested_rows_become_structs() -> None:
    """Structs take rows, dicts and tuples, wherever they are nested."""
    leg = pa.struct([("origin", pa.string()), ("legs", pa.int64())])
    schema = pa.schema([("k", pa.string()), ("all", pa.list_(leg)), ("by", pa.map_(pa.string(), leg))])
    (given,) = rows_of(row_class(("legs", "origin")), [[4], ["SFO"]])
    (row,) = rows_in(
        schema, ("k", [Row(origin="JFK", legs=1), {"origin": "EWR", "legs": 2}, ("LGA", 3), given, None], {"x": Row("BOS", 5)})
    )
    assert row["all"] == [{"origin": o, "legs": n} for o, n in (("JFK", 1), ("EWR", 2), ("LGA", 3), ("SFO", 4))] + [None]
    assert row["by"] == [("x", {"origin": "BOS", "legs": 5})]


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (pa.int64(), 1.5, "float"),
        (pa.int64(), True, "bool"),
        (pa.int64(), "1", "str"),
        (pa.int32(), 1 << 40, "int"),
        (pa.float64(), True, "bool"),
        (pa.float64(), "1", "str"),
        (pa.string(), 1, "int"),
        (pa.string(), b"x", "bytes"),
        (pa.binary(), "x", "str"),
        (pa.bool_(), 1, "int"),
        (pa.timestamp("us"), 1_000, "int"),
        (pa.timestamp("us"), date(2013, 1, 1), "date"),
        (pa.date32(), datetime(2013, 1, 1), "datetime"),  # noqa: DTZ001  # without a zone on purpose
        (pa.date32(), 1, "int"),
        (pa.decimal128(4, 2), Decimal("1.234"), "Decimal"),
        (pa.list_(pa.int64()), [1.5], "float"),
        (pa.list_(pa.string()), "ab", "str"),
        (pa.struct([("x", pa.int64())]), {"x": 1.5}, "float"),
        (pa.struct([("x", pa.int64())]), {"y": 1}, "dict"),
        (pa.struct([("x", pa.int64())]), (1, 2), "tuple"),
        (pa.map_(pa.string(), pa.int64()), {1: 1}, "int"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(kind: pa.DataType, value: Any, found: str) -> None:
    """Column, expected type and the Python type found are named, the value never; nothing is cut or guessed."""
    schema = pa.schema([("tailnum", pa.string()), ("v", kind)])
    with pytest.raises(InvalidInputError) as caught:
        rows_in(schema, ("N1", None), ("N-SECRET", value))
    text = str(caught.value)
    assert "'v" in text
    assert re.search(rf"\ban? {found}\b", text)
    assert "SECRET" not in text
    assert "'u'" in text


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (("N1",), "1 values for 2 columns"),
        (("N1", 1, 2), "3 values for 2 columns"),
        ({"tailnum": "N1"}, "without the column 'legs'"),
        (Row(tailnum="N1", legs=1, x=2), "unknown columns 'x'"),
        (5, "an int as a row"),
        ("ab", "a str as a row"),
        (None, "a NoneType as a row"),
        (Row.of_kind(RowKind.DELETE, "N1", 1), "Row of kind DELETE"),
    ],
)
def test_a_row_of_another_shape_is_refused(row: Any, says: str) -> None:
    """The text says what is wrong with the row, alone or among good ones."""
    for rows in ([row], [("N1", 1), row, ("N2", 2)]):
        with pytest.raises(InvalidInputError, match=says):
            OutputSchema(TWO, "the step 'u'").batch(rows)


def test_null_in_a_required_column_is_refused() -> None:
    """Spark trusts the schema's nullability, so a None must not slip through, not even in a struct."""
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(InvalidInputError, match=r"'n'.*not nullable"):
        rows_in(schema, 1, None)
    inner = pa.schema([("s", pa.struct([pa.field("x", pa.int64(), nullable=False)]))])
    with pytest.raises(InvalidInputError, match=r"'s\.x'"):
        rows_in(inner, ({"x": None},))


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_numpy_times_of_every_unit_are_taken(unit: str, zone: str | None) -> None:
    """Alone and within other values; they are in UTC, and NaT is null."""
    kind = pa.timestamp("us", zone)
    schema = pa.schema([("t", kind), ("a", pa.list_(kind))])
    at, missing = np.datetime64("2026-01-02", "D").astype(f"datetime64[{unit}]"), np.array(["NaT"], f"datetime64[{unit}]")[0]
    first, second = (
        (OutputSchema(schema, "the step 'u'").batch([(each, [each]) for each in (at, missing)]))
        .cast(pa.schema([("t", pa.timestamp("us")), ("a", pa.list_(pa.timestamp("us")))]))
        .to_pylist()
    )
    midnight = datetime(2026, 1, 2)  # noqa: DTZ001  # without a zone on purpose
    assert first == {"t": midnight, "a": [midnight]}
    assert second == {"t": None, "a": [None]}


def test_a_time_with_a_zone_is_no_local_time() -> None:
    """The column would get the wall time of UTC, which nobody has meant; as state of the type SQL_TIMESTAMP refuses it."""
    schema = pa.schema([("t", pa.timestamp("us")), ("a", pa.list_(pa.timestamp("us")))])
    local, zoned = datetime(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)  # noqa: DTZ001  # without a zone on purpose
    assert rows_in(schema, (local, [local, None])) == [{"t": local, "a": [local, None]}]
    for row, column in (((zoned, [local]), "t"), ((local, [None, zoned]), r"a\[\]")):
        with pytest.raises(
            InvalidInputError, match=rf"produced a datetime with a zone for column '{column}' of type .*replace\(tzinfo=None\)"
        ):
            rows_in(schema, row)
    with pytest.raises(InvalidInputError, match=r"a datetime64 outside the years 1 to 9999"):
        rows_in(schema, (np.datetime64("10000-01-01"), None))
