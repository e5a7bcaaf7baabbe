"""Sorted runs on local disk, and their merge.

A run is an Arrow IPC file (lz4) of small sorted blocks. The merge keeps one block per run in memory and is vectorized: it
never compares single rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from statefulspark.process.sorting.sortkeys import SortKeys, taken

__all__ = ["Run", "merged", "write_run"]

_NOTHING = pa.record_batch({})
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Run:
    """A sorted file. ``level`` counts the merges its rows have been through."""

    path: Path
    level: int


def write_run(path: Path, level: int, schema: pa.Schema, blocks: Iterable[pa.RecordBatch]) -> Run:
    """Write sorted blocks, each small enough to be a merge's read-ahead."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema, options=_LZ4) as writer:
        for block in blocks:
            writer.write_batch(block)
    return Run(path, level)


class _Reader:
    """One run being read: the rest of one block, and the blocks still on disk."""

    def __init__(self, run: Run, event_time: str | None) -> None:
        self._file = pa.OSFile(str(run.path), "rb")
        self._blocks = pa.ipc.open_file(self._file)
        self._event_time = event_time
        self._next = 0
        self._first = 0
        self._block = _NOTHING
        self._keys = SortKeys(())

    @property
    def on_disk(self) -> bool:
        """True if there are blocks left to read."""
        return bool(self._next < self._blocks.num_record_batches)

    def fill(self) -> bool:
        """Read the next block if the last one is used up; False when the run has ended."""
        while self._first == self._block.num_rows and self.on_disk:
            self._block, self._first = self._blocks.get_batch(self._next), 0
            self._keys = SortKeys.of(self._block, self._event_time)
            self._next += 1
        return bool(self._first < self._block.num_rows)

    def last_key(self) -> tuple[int, ...]:
        """Return the sort key of the last row in memory."""
        return self._keys.at(-1)

    def take_until(self, pivot: tuple[int, ...] | None, *, inclusive: bool) -> pa.RecordBatch | None:
        """Take the rows in memory below ``pivot`` (all for None); None when there are none."""
        first = self._first
        self._first = self._block.num_rows if pivot is None else self._keys.count_until(first, pivot, inclusive=inclusive)
        return self._block.slice(first, self._first - first) if self._first > first else None

    def close(self) -> None:
        self._file.close()


def merged(runs: Sequence[Run], event_time: str | None, *, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Merge runs, given in the order of their rows' arrival, to one sorted stream of pieces of at most so many rows and bytes."""
    readers = [_Reader(run, event_time) for run in runs]
    try:
        while True:
            active = [(index, reader) for index, reader in enumerate(readers) if reader.fill()]
            if not active:
                return
            # Rows above the smallest "last key in memory" may still be preceded by rows on disk. For rows equal to it that is
            # only so in runs after the one it belongs to: theirs arrived later and must wait for the rest of that run.
            pivot, owner = min(((reader.last_key(), index) for index, reader in active if reader.on_disk), default=(None, -1))
            pieces = [reader.take_until(pivot, inclusive=index <= owner) for index, reader in active]
            batch = pa.concat_batches([piece for piece in pieces if piece is not None])
            yield from taken(batch, SortKeys.of(batch, event_time).permutation(), rows_max=rows_max, bytes_max=bytes_max)
    finally:
        for reader in readers:
            reader.close()
