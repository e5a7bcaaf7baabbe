"""BatchOrder: sorted by (hash, event time, source, arrival), stable, in bounded memory, leaving nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.process.sorting.order import BatchOrder

SCHEMA = pa.schema([("__kh", pa.int64()), ("__src", pa.int32()), ("at", pa.timestamp("us")), ("n", pa.int64()), ("text", pa.string())])

Record = tuple[int | None, int, int | None, int, str]

rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([-(1 << 63), (1 << 63) - 1])),
        st.integers(0, 2),
        st.one_of(st.none(), st.integers(-2, 2)),
        st.text("xyz", max_size=30),
    ),
    max_size=120,
)


def batches_of(records: list[Record], size: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(records), size):
        columns = zip(*records[first : first + size], strict=True)
        yield pa.record_batch([pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def expected(records: list[Record], *, by_time: bool) -> list[int]:
    def key(record: Record) -> tuple[Any, ...]:
        kh, source, at, _, _ = record
        return (kh, (at is not None, at or 0) if by_time else 0, source)

    return [record[3] for record in sorted((record for record in records if record[0] is not None), key=key)]


@given(
    rows=rows,
    size=st.integers(1, 40),
    sort_bytes=st.sampled_from([1, 500, 3_000, 1 << 20]),
    rows_max=st.sampled_from([1, 7, 1000]),
    by_time=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_equals_pythons_stable_sort(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int | None, int, int | None, str]],
    size: int,
    sort_bytes: int,
    rows_max: int,
    by_time: bool,
) -> None:
    """Whatever fits into memory or not, the order is that of a plain stable sort and no file stays."""
    directory = tmp_path_factory.mktemp("order")
    records: list[Record] = [(kh, source, at, index, text) for index, (kh, source, at, text) in enumerate(rows)]
    order = BatchOrder(event_time="at" if by_time else None, sort_bytes=sort_bytes, spill_directory=directory / "spill", rows_max=rows_max)
    pieces = list(order.sorted(batches_of(records, size)))
    assert [n for piece in pieces for n in piece.column("n").to_pylist()] == expected(records, by_time=by_time)
    assert all(1 <= piece.num_rows <= rows_max for piece in pieces)
    assert not list((directory / "spill").glob("*"))


def test_one_hot_key_with_equal_sort_keys_keeps_arrival(tmp_path: Path) -> None:
    """Hundreds of runs full of one and the same sort key are merged in order of arrival, over several merge passes."""
    records: list[Record] = [(5, 0, 1, n, "x" * 20) for n in range(3_000)]
    order = BatchOrder(event_time="at", sort_bytes=1_000, spill_directory=tmp_path)
    assert [n for piece in order.sorted(batches_of(records, 5)) for n in piece.column("n").to_pylist()] == list(range(3_000))
    assert order.spilled_runs > 300


def test_memory_stays_within_its_bound(tmp_path: Path) -> None:
    """Rows of 20 times the sort memory go through while Arrow never holds more than that memory plus one input batch."""
    sort_bytes = 4 << 20
    text = "y" * 1000
    batch = pa.record_batch(
        [
            pa.array(range(1000), pa.int64()),
            pa.array([0] * 1000, pa.int32()),
            pa.nulls(1000, pa.timestamp("us")),
            pa.array(range(1000), pa.int64()),
            pa.array([text] * 1000),
        ],
        schema=SCHEMA,
    )
    pool = pa.default_memory_pool()
    before, most, count = pool.bytes_allocated(), 0, 0

    def copies() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for _ in range(80):
            yield batch.take(pa.array(range(1000)))
            most = max(most, pool.bytes_allocated() - before)

    for piece in BatchOrder(event_time="at", sort_bytes=sort_bytes, spill_directory=tmp_path).sorted(copies()):
        count += piece.num_rows
        most = max(most, pool.bytes_allocated() - before)
    assert count == 80_000
    assert most < sort_bytes + 2 * batch.nbytes


def test_long_rows_of_one_key_are_split_by_bytes(tmp_path: Path) -> None:
    """An average hides a hot key with long rows; pieces are bounded by bytes all the same."""
    records: list[Record] = [(1, 0, None, n, "z" * 10_000 if n % 10 == 0 else "") for n in range(400)]
    order = BatchOrder(event_time=None, sort_bytes=1 << 20, spill_directory=tmp_path)
    for piece in order.sorted(batches_of(records, 400)):
        assert piece.nbytes <= (1 << 20) // 32 or piece.num_rows == 1


def test_spilled_files_go_away_when_reading_stops_or_fails(tmp_path: Path) -> None:
    """Neither a consumer that stops early nor an input that breaks leaves files."""
    records: list[Record] = [(n % 7, 0, None, n, "text") for n in range(500)]
    stopped = BatchOrder(event_time=None, sort_bytes=2_000, spill_directory=tmp_path).sorted(batches_of(records, 20))
    next(stopped)
    assert list(tmp_path.glob("*/*.arrow"))
    stopped.close()  # type: ignore[attr-defined]  # sorted() is a generator
    assert not list(tmp_path.iterdir())

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches_of(records, 20)
        raise ConnectionError("stream ended")

    with pytest.raises(ConnectionError):
        list(BatchOrder(event_time=None, sort_bytes=2_000, spill_directory=tmp_path).sorted(broken()))
    assert not list(tmp_path.iterdir())


def test_a_disk_that_refuses_is_unavailable(tmp_path: Path) -> None:
    """The error names the directory, so that the reader knows which volume is full."""
    (tmp_path / "file").write_text("")
    records: list[Record] = [(n, 0, None, n, "text") for n in range(100)]
    with pytest.raises(UnavailableError, match="file"):
        list(BatchOrder(event_time=None, sort_bytes=100, spill_directory=tmp_path / "file").sorted(batches_of(records, 20)))


def test_no_memory_is_refused(tmp_path: Path) -> None:
    """A bound of nothing is a mistake of the caller."""
    with pytest.raises(InvalidInputError, match="sort_bytes"):
        BatchOrder(event_time=None, sort_bytes=0, spill_directory=tmp_path)
