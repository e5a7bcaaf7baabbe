"""The greatest event times of rows by value of ``watermark_by``."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import InvalidInputError
from statefulspark.process.rows.latest_by_value import LatestByValue, check_value_columns
from statefulspark.process.rows.value_times import columns_of_value, value_of

Topic = st.none() | st.text(max_size=3)
Rows = st.lists(st.tuples(Topic, st.none() | st.integers(-2, 2), st.none() | st.integers(-5, 5)), max_size=8)


@given(st.lists(Rows, max_size=4), st.sampled_from(["ms", "us", None]))
def test_they_are_those_of_all_rows_with_the_value(
    batches: list[list[tuple[str | None, int | None, int | None]]], unit: str | None
) -> None:
    """Nulls are a value like others; rows without an event time do not count."""
    columns = ("topic", "partition")
    latest = LatestByValue(columns)
    per_ms = 1_000 if unit == "us" else 1
    for rows in batches:
        times = pa.array([None if at is None else at * per_ms for _, _, at in rows], pa.int64())
        values = [pa.array([row[0] for row in rows], pa.string()), pa.array([row[1] for row in rows], pa.int32())]
        latest.see(values, times if unit is None else times.cast(pa.timestamp(unit)))
    expected: dict[tuple[str | None, int | None], int] = {}
    for topic, partition, at in (row for rows in batches for row in rows):
        if at is not None:
            expected[topic, partition] = max(at, expected.get((topic, partition), at))
    assert latest.times == {value_of(columns, value): at for value, at in expected.items()}
    assert {columns_of_value(value) for value in latest.times} <= {columns}


def test_too_many_values_and_too_long_ones_are_refused_without_their_text() -> None:
    latest = LatestByValue(("user",))
    latest.see([pa.array(range(1_024))], pa.array(range(1_024)))
    latest.see([pa.array(range(1_024))], pa.array(range(1_024)))
    with pytest.raises(
        InvalidInputError, match=r"watermark_by: column 'user' has had more than 1,024 values.*such as Kafka's topic and partition"
    ):
        latest.see([pa.array([1_024])], pa.array([0]))
    with pytest.raises(InvalidInputError, match="a value of column 'user' has more than 512 characters") as raised:
        LatestByValue(("user",)).see([pa.array(["secret" * 100])], pa.array([0]))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("columns", "changes", "said"),
    [
        (("site",), {}, "watermark_by: column 'site' does not exist. The input has: topic, partition, share"),
        (("share",), {}, "watermark_by: column 'share' is double. Cast it to int, bigint or string"),
        (("topic", "topic"), {}, "watermark_by: names a column twice"),
        (("topic",), {"has_event_time": False}, "watermark_by: needs event time"),
        (("topic",), {"has_watermark": False}, "watermark_by: the input has the watermark of the steps before it. Give watermark too"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: tuple[str, ...], changes: dict[str, Any], said: str) -> None:
    schema = pa.schema({"topic": pa.string(), "partition": pa.int32(), "share": pa.float64()})
    check_value_columns(schema, ("topic", "partition"), has_event_time=True, has_watermark=True)
    check_value_columns(schema, (), has_event_time=False, has_watermark=False)
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        check_value_columns(schema, columns, **({"has_event_time": True, "has_watermark": True} | changes))
