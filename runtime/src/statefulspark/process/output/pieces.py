"""Splits record batches by bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

__all__ = ["pieces"]


def pieces(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order, in pieces of at most so many bytes, save for single rows; no bytes are copied.

    Halves until every piece fits: an average says little when a few rows are long.
    """
    if batch.nbytes <= bytes_max or batch.num_rows <= 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from pieces(batch.slice(0, middle), bytes_max)
    yield from pieces(batch.slice(middle), bytes_max)
