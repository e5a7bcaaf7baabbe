"""BatchOrder: sorts a batch's rows into the order in which functions see them, in bounded memory.

The order is (key hash, event time, source partition, arrival): all rows of a key are adjacent and in event-time order, and a
retry of the batch has the same order.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.process.rows.reserved_columns import KEY_HASH
from statefulspark.process.sorting.runs import Run, merged, write_run
from statefulspark.process.sorting.sortkeys import ROW_BYTES, SortKeys, taken

__all__ = ["BatchOrder"]

_FAN_IN = 16
"""Runs merged at once. With more, blocks would become too small to compress and read well."""
_BLOCK_ROWS_MAX = 65_536
"""Rows per block of a run; long rows make it fewer."""
_SORT_BYTES_MAX = 1 << 30
"""Arrow's string columns end at 2 GiB, and sorting joins the buffered rows to one."""


class BatchOrder:
    """Sorts the record batches of one batch of one keyed step in one slot.

    Rows that fit into ``sort_bytes`` are sorted in memory. More rows are spilled as sorted runs, which are merged with a bounded
    read-ahead; hundreds of runs are merged in several passes.

    Args:
        event_time: the user column to sort by after the key, or None.
        sort_bytes: memory to use, in bytes. Half of it holds rows, since sorting makes a copy.
        spill_directory: local directory for runs; created when needed, and left as it was.
        rows_max: rows per batch given back. A few thousand keep what a row touches in the processor's cache.
    """

    def __init__(self, *, event_time: str | None, sort_bytes: int, spill_directory: Path, rows_max: int = 4_096) -> None:
        if sort_bytes < 1:
            raise InvalidInputError(f"{sort_bytes} is not a size in bytes", field="sort_bytes", remedy="Give at least 1")
        self._event_time = event_time
        self._buffer_bytes_max = min(sort_bytes, _SORT_BYTES_MAX) // 2
        self._block_bytes_max = max(1, self._buffer_bytes_max // _FAN_IN)
        self._spill_directory = spill_directory
        self._rows_max = rows_max
        self._buffer: list[pa.RecordBatch] = []
        self._buffer_bytes = 0
        self._directory: Path | None = None
        self._runs: list[Run] = []
        self._run_count = 0

    @property
    def spilled_runs(self) -> int:
        """Number of runs written so far, including merged ones."""
        return self._run_count

    def sorted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take all of ``batches``, then yield their rows in order; tick rows (null hash) are dropped.

        Raises:
            UnavailableError: the local disk refused the spilled runs.
        """
        try:
            for batch in batches:
                self._add(batch)
            if not self._runs:
                yield from self._sorted_buffer(self._rows_max)
                return
            self._spill()
            while len(self._runs) > _FAN_IN:
                self._merge_last(min(_FAN_IN, len(self._runs) - _FAN_IN + 1))
            yield from merged(self._runs, self._event_time, rows_max=self._rows_max, bytes_max=self._block_bytes_max)
        finally:
            self._buffer = []
            self._runs = []
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def _add(self, batch: pa.RecordBatch) -> None:
        if batch.column(KEY_HASH).null_count:
            batch = batch.filter(batch.column(KEY_HASH).is_valid())
        if not batch.num_rows:
            return
        self._buffer.append(batch)
        self._buffer_bytes += batch.nbytes + batch.num_rows * ROW_BYTES
        if self._buffer_bytes > self._buffer_bytes_max:
            self._spill()

    def _sorted_buffer(self, rows_max: int) -> Iterator[pa.RecordBatch]:
        if not self._buffer:
            return
        batch = self._buffer[0] if len(self._buffer) == 1 else pa.concat_batches(self._buffer)
        self._buffer = []
        self._buffer_bytes = 0
        permutation = SortKeys.of(batch, self._event_time).permutation()
        yield from taken(batch, permutation, rows_max=rows_max, bytes_max=self._block_bytes_max)

    def _spill(self) -> None:
        """Write what is buffered as one run, and merge runs of one level as soon as there are enough of them."""
        if not self._buffer:
            return
        schema = self._buffer[0].schema
        self._write(0, schema, self._sorted_buffer(_BLOCK_ROWS_MAX))
        while len(self._runs) >= _FAN_IN and self._runs[-_FAN_IN].level == self._runs[-1].level:
            self._merge_last(_FAN_IN)

    def _merge_last(self, count: int) -> None:
        # Only neighbours are merged, so that the runs stay in the order in which their rows arrived.
        runs = self._runs[-count:]
        del self._runs[-count:]
        with pa.OSFile(str(runs[0].path), "rb") as file:
            schema = pa.ipc.open_file(file).schema
        pieces = merged(runs, self._event_time, rows_max=_BLOCK_ROWS_MAX, bytes_max=self._block_bytes_max)
        self._write(max(run.level for run in runs) + 1, schema, pieces)
        for run in runs:
            run.path.unlink()

    def _write(self, level: int, schema: pa.Schema, pieces: Iterator[pa.RecordBatch]) -> None:
        try:
            if self._directory is None:
                self._spill_directory.mkdir(parents=True, exist_ok=True)
                self._directory = Path(tempfile.mkdtemp(prefix="order-", dir=self._spill_directory))
            self._runs.append(write_run(self._directory / f"{self._run_count}.arrow", level, schema, pieces))
        except OSError as error:
            raise UnavailableError(
                f"{self._spill_directory}: cannot spill rows to sort them ({error.strerror or type(error).__name__})"
            ) from error
        self._run_count += 1
