"""CollectedOutput: the rows that a job in a notebook has emitted, kept on the driver for `RunningLocalJob.output`."""

from __future__ import annotations

import threading

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema


class CollectedOutput:
    """The latest rows of one output. Thread-safe: batches come while cells read.

    Args:
        schema: Of the rows.
        rows_max: Most rows that are kept; the oldest are dropped.
    """

    def __init__(self, schema: T.StructType, rows_max: int) -> None:
        self._schema = schema
        self._rows_max = rows_max
        self._batches: dict[int, pa.Table] = {}
        self._lock = threading.Lock()
        self._dropped = 0

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Keep the rows of a batch; a batch that runs again replaces itself. Spark calls it."""
        self.keep(df.toArrow(), batch_id)

    def keep(self, table: pa.Table, batch_id: int) -> None:
        """Keep the rows of a batch, of a large one the last ones."""
        with self._lock:
            self._batches.pop(batch_id, None)
            surplus = sum(each.num_rows for each in self._batches.values()) + table.num_rows - self._rows_max
            for oldest in list(self._batches):
                if surplus <= 0:
                    break
                rows = self._batches[oldest].num_rows
                cut = min(rows, surplus)
                self._batches[oldest] = self._batches[oldest].slice(cut)
                surplus -= cut
                self._dropped += cut
                if cut == rows:
                    del self._batches[oldest]
            if surplus > 0:
                table = table.slice(surplus)
                self._dropped += surplus
            if table.num_rows:
                self._batches[batch_id] = table

    @property
    def dropped(self) -> int:
        """Number of rows that are no longer kept."""
        return self._dropped

    def table(self) -> pa.Table:
        """All rows that are kept, batch by batch."""
        with self._lock:
            tables = [table for _, table in sorted(self._batches.items())]
        return pa.concat_tables(tables) if tables else to_arrow_schema(self._schema, timezone="UTC").empty_table()
