"""Output rows are collected until they are enough by number or by size, whatever they look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark import Row
from statefulspark.errors import InvalidInputError
from statefulspark.process.output.buffer import OutputBuffer
from statefulspark.process.output.output import OutputSchema

TEXT = pa.schema([("text", pa.string()), ("n", pa.int64())])
NESTED = pa.schema([("texts", pa.list_(pa.string())), ("by", pa.map_(pa.string(), pa.binary()))])


def collected(schema: pa.Schema, rows: list[Any], *, rows_max: int = 10_000, bytes_max: int) -> list[pa.RecordBatch]:
    buffer = OutputBuffer(schema, "the step 'u'", rows_max=rows_max, bytes_max=bytes_max)
    batches = [buffer.take() for row in rows if buffer.add(row)]
    return [*batches, buffer.take()] if buffer else batches


@given(
    st.lists(st.tuples(st.text(max_size=400) | st.none(), st.integers(-5, 5)), max_size=60),
    st.sampled_from(
        [tuple, list, lambda row: Row(*row), lambda row: Row(text=row[0], n=row[1]), lambda row: {"text": row[0], "n": row[1]}]
    ),
    st.integers(1, 2000),
    st.integers(1, 20),
)
def test_no_batch_is_larger_than_its_bounds(rows: list[tuple[str | None, int]], form: Any, bytes_max: int, rows_max: int) -> None:
    """Rows come out in order, in batches within both bounds but for the row that passes the one of bytes."""
    batches = collected(TEXT, [form(row) for row in rows], rows_max=rows_max, bytes_max=bytes_max)
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == rows
    for batch in batches:
        assert batch.num_rows <= rows_max
        texts = [text or "" for text in batch.column("text").to_pylist()]
        assert sum(len(text.encode()) for text in texts[:-1]) < bytes_max


def test_what_is_inside_of_lists_and_maps_counts() -> None:
    """A column of any nesting is measured by all of its values."""
    rows = [(["x" * 1000], {"k": b"y" * 1000}), (np.array(["x" * 2000], dtype=object), {})] * 10
    assert [batch.num_rows for batch in collected(NESTED, rows, bytes_max=4000)] == [2] * 10


def test_rows_of_fixed_size_are_counted_only() -> None:
    """Numbers need no measuring: the bound of rows bounds their bytes."""
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us"))])
    assert [batch.num_rows for batch in collected(schema, [(1, None)] * 25, rows_max=10, bytes_max=1)] == [10, 10, 5]


@pytest.mark.exhaustive
def test_more_than_a_column_holds_at_once_is_refused_by_name() -> None:
    """Values of more than 2 GiB together are the giver's, not a TypeError of Arrow's."""
    text = "x" * (1 << 30)
    with pytest.raises(InvalidInputError, match=r"produced more than 2 GiB at once for column 'text'"):
        OutputSchema(TEXT, "the test").batch([(text, 1)] * 3)
