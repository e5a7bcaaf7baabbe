"""BroadcastRows: the rows of a broadcast stream in one batch of one slot, in the order in which every slot processes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.process.rows.columns import event_time_keys, event_time_ms, max_event_time_ms, python_values
from statefulspark.process.rows.reserved_columns import KEY_HASH, PART, SECOND
from statefulspark.process.rows.rows import InputRow, row_class, rows_of
from statefulspark.process.rows.step_spec import InputSpec
from statefulspark.process.runner.broadcast_summary import BroadcastSummary
from statefulspark.sizes import short_size

__all__ = ["BroadcastRows"]

_CHUNK_ROWS: Final = 4_096


class BroadcastRows:
    """Collects the rows of one batch, and gives them back sorted by event time, source partition and arrival. Used by one thread.

    Args:
        uid: The step, for error messages.
        spec: The broadcast stream.
        bytes_max: Most bytes of all rows, as Arrow columns.
        parallelism: Number of slots, for error messages.
    """

    def __init__(self, uid: str, spec: InputSpec, *, bytes_max: int, parallelism: int) -> None:
        self._uid = uid
        self._spec = spec
        self._bytes_max = bytes_max
        self._parallelism = parallelism
        self._row = row_class(tuple(spec.schema.names))
        self._pieces: list[pa.StructArray] = []
        self._rows = 0
        self._size_bytes = 0
        self._digest = hashlib.sha256()

    def take_from(self, batch: pa.RecordBatch) -> None:
        """Keep the rows of the broadcast stream that a batch from the exchange has; the other rows are left to the caller.

        Raises:
            InvalidInputError: The stream is too large to be broadcast.
        """
        if not batch.column(KEY_HASH).null_count:
            return
        structs = batch.column(SECOND)
        mine = structs.filter(structs.is_valid())
        if not len(mine):
            return
        self._pieces.append(mine)
        self._rows += len(mine)
        self._size_bytes += mine.nbytes
        if self._size_bytes > self._bytes_max:
            raise InvalidInputError(
                f"the broadcast stream of uid {self._uid!r} had more than {short_size(self._bytes_max)} in one batch, "
                f"and each row goes to all {self._parallelism} slots",
                field="broadcast",
                remedy="Limit the rows per batch (maxOffsetsPerTrigger, maxFilesPerTrigger), or key the stream and connect it",
            )

    def max_event_time_ms(self) -> int | None:
        """Return the latest event time in milliseconds since the epoch; None without rows or event time."""
        if self._spec.event_time is None:
            return None
        place = 1 + self._spec.schema.names.index(self._spec.event_time)
        return max((each for piece in self._pieces if (each := max_event_time_ms(piece.flatten()[place])) is not None), default=None)

    def sorted(self) -> Iterator[tuple[InputRow, int | None]]:
        """Yield the rows with their event times in milliseconds since the epoch, and forget them."""
        if not self._pieces:
            return
        joined = self._pieces[0] if len(self._pieces) == 1 else pa.concat_arrays(self._pieces)
        self._pieces = []
        rows = pa.RecordBatch.from_struct_array(joined)
        names, event_time = self._spec.schema.names, self._spec.event_time
        by = [rows.column(PART).to_numpy(zero_copy_only=False)]
        if event_time is not None:
            by.append(event_time_keys(rows.column(event_time)))
        # Stable, so that rows of equal time and partition stay in the order of their arrival.
        order = np.lexsort(by)
        for first in range(0, len(order), _CHUNK_ROWS):
            chunk = rows.take(pa.array(order[first : first + _CHUNK_ROWS]))
            times: list[int | None] = [None] * chunk.num_rows if event_time is None else event_time_ms(chunk.column(event_time))
            for row, time in zip(rows_of(self._row, [python_values(chunk.column(name), name) for name in names]), times, strict=True):
                self._digest.update(repr(tuple(row)).encode(errors="surrogatepass"))
                yield row, time

    def summary(self) -> BroadcastSummary:
        """Return the summary that the slot acknowledges, once all rows of `sorted` have been taken."""
        return BroadcastSummary(rows=self._rows, size_bytes=self._size_bytes, digest=self._digest.hexdigest())
