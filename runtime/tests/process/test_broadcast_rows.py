"""Rows of a broadcast stream as one slot collects them in a batch: their order, their digest, and how many there may be."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.process.rows.step_spec import InputSpec
from statefulspark.process.runner.broadcast_rows import BroadcastRows


def rows(*values: tuple[int, int, int | None]) -> pa.RecordBatch:
    """Rows as Spark shuffles them: source partition, n and time; a keyed row after each."""
    second = pa.struct([("__part", pa.int32()), ("n", pa.int64()), ("at", pa.int64())])
    mixed = [each for part, n, at in values for each in ({"__part": part, "n": n, "at": at}, None)]
    hashes = [each for _ in values for each in (None, 1)]
    return pa.RecordBatch.from_arrays([pa.array(hashes, pa.int64()), pa.array(mixed, second)], names=["__kh", "__2"])


def collector(bytes_max: int = 1 << 20, event_time: str | None = "at") -> BroadcastRows:
    return BroadcastRows(
        "u", InputSpec(pa.schema([("n", pa.int64()), ("at", pa.int64())]), (), event_time), bytes_max=bytes_max, parallelism=64
    )


def test_rows_come_by_time_then_partition_then_arrival() -> None:
    """However they were cut into messages; rows without time come first. The digest is that of the rows in this order."""
    arrived = [(1, 0, 5), (0, 1, 5), (1, 2, 5), (0, 3, 4), (1, 4, None), (0, 5, None), (0, 6, 5)]
    found = []
    for cut in (1, 3, 7):
        collected = collector()
        for first in range(0, len(arrived), cut):
            collected.take_from(rows(*arrived[first : first + cut]))
        assert collected.max_event_time_ms() == 5
        found.append(([(row.n, time) for row, time in collected.sorted()], collected.summary()))
    assert found[0][0] == [(5, None), (4, None), (3, 4), (1, 5), (6, 5), (0, 5), (2, 5)]
    digest = hashlib.sha256(b"".join(repr((n, at)).encode() for n, at in found[0][0])).hexdigest()
    assert [(each, summary.rows, summary.digest) for each, summary in found] == [(found[0][0], 7, digest)] * 3
    without = collector(event_time=None)
    without.take_from(rows(*arrived))
    assert [row.n for row, _ in without.sorted()] == [1, 3, 5, 6, 0, 2, 4]
    assert without.summary().digest != digest


def test_a_stream_that_is_too_large_is_refused() -> None:
    """With the memory for sorting as the limit, and the remedy."""
    collected = collector(bytes_max=10_000)
    with pytest.raises(InvalidInputError, match=r"'u' had more than .* in one batch, and each row goes to all 64 slots. Limit the rows"):
        collected.take_from(rows(*[(0, n, n) for n in range(1_000)]))
