"""Sort keys of the rows in a batch: (key hash, event time, source, arrival), as numpy columns.

Arrival is not stored: every sort is stable and every concatenation preserves the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from statefulspark.process.output.pieces import pieces
from statefulspark.process.rows.columns import event_time_keys
from statefulspark.process.rows.reserved_columns import KEY_HASH, SOURCE

__all__ = ["SortKeys", "taken"]

ROW_BYTES = 36
"""Memory per row beside its columns while sorting: hash, time, source, permutation and the sort's own buffer."""

Numbers = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class SortKeys:
    """The sort columns of some rows, most significant first, all of one length."""

    columns: tuple[Numbers, ...]

    @classmethod
    def of(cls, batch: pa.RecordBatch, event_time: str | None) -> SortKeys:
        """Read them from a batch; ``event_time`` names a user column or is None."""
        kh = batch.column(KEY_HASH).to_numpy(zero_copy_only=False)
        source = batch.column(SOURCE).to_numpy(zero_copy_only=False)
        if event_time is None:
            return cls((kh, source))
        return cls((kh, event_time_keys(batch.column(event_time)), source))

    def permutation(self) -> Numbers:
        """Return the stable sort order of the rows."""
        columns = self.columns
        if columns[-1].size and (columns[-1] == columns[-1][0]).all():
            # One source is the common case in small jobs, and a sort column less is a third of the time.
            columns = columns[:-1]
        return np.lexsort(columns[::-1])

    def at(self, index: int) -> tuple[int, ...]:
        """Return one row's sort key."""
        return tuple(int(column[index]) for column in self.columns)

    def count_until(self, first: int, pivot: tuple[int, ...], *, inclusive: bool) -> int:
        """Return the index after the last row that is below ``pivot`` (or equal, when inclusive); rows are sorted from ``first`` on."""
        low, high = first, len(self.columns[0])
        for column, value in zip(self.columns, pivot, strict=True):
            part = column[low:high]
            low, high = low + int(np.searchsorted(part, value, "left")), low + int(np.searchsorted(part, value, "right"))
        return high if inclusive else low


def taken(batch: pa.RecordBatch, permutation: Numbers, *, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch's rows in the order of ``permutation``, in pieces of at most so many rows and (save for single rows) bytes."""
    average = max(1, batch.nbytes // max(1, batch.num_rows))
    step = max(1, min(rows_max, bytes_max // average))
    for first in range(0, len(permutation), step):
        yield from pieces(batch.take(pa.array(permutation[first : first + step])), bytes_max)
