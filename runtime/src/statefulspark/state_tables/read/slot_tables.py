"""SlotTables: the tables of all states of a slot, made from one scan of its entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.store.base import StoredEntries
from statefulspark.state_tables.read.layouts import BATCH_BYTES, ROWS_MAX
from statefulspark.state_tables.read.payloads import Payloads
from statefulspark.state_tables.read.reading import StateReader
from statefulspark.state_tables.write.write_behind import WriteBehind
from statefulspark.storage.local.os_errors import local_disk

ROW_GROUP_BATCHES: Final = 8
"""Batches of a row group."""
_HELD_BYTES: Final = 64 << 20
"""Converted rows of all states that wait for their row groups to fill."""
_STATE_ID: Final = 2
"""Offset of the state id in a store key, behind the key group."""


class StateTable:
    """The table of one state of one slot.

    Attributes:
        reader: Of the state.
        path: The file, if there are rows.
        rows: How many there are.
        problem: Why the state has no table: a value that no column holds. None if it has one.
        held_bytes: Of rows that are not written yet.
    """

    def __init__(self, reader: StateReader, path: Path, store: StoredEntries, writes: WriteBehind) -> None:
        self.reader = reader
        self.path = path
        self.rows = 0
        self.problem: str | None = None
        self.held_bytes = 0
        self._scan = store.scan
        self._writes = writes
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._size_bytes = 0
        self._group: list[pa.RecordBatch] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, keys: list[bytes], values: list[bytes]) -> None:
        """Take entries of the state, in the order of the scan. Errors as of `StateReader.converted`."""
        if self.problem is not None:
            return
        self._keys += keys
        self._values += values
        self._size_bytes += sum(map(len, keys)) + sum(map(len, values))
        if self._size_bytes >= BATCH_BYTES or len(self._keys) >= ROWS_MAX:
            self._convert()

    def finish(self) -> None:
        """Write what is left; the file is complete when all writes have ended. Errors as of `add`."""
        self._convert()
        self.write_group()
        self._writes.run(self._close)

    def write_group(self) -> None:
        """Write the rows that wait."""
        group, self._group, self.held_bytes = self._group, [], 0
        if group and self.problem is None:
            self._writes.run(lambda: self._write(pa.Table.from_batches(group)))

    def _convert(self) -> None:
        keys, values = self._keys, self._values
        self._keys, self._values, self._size_bytes = [], [], 0
        if not keys or self.problem is not None:
            return
        try:
            batch = self.reader.converted(keys, values, self._scan)
        except (InvalidInputError, pa.ArrowNotImplementedError) as error:
            self._refuse(error)
            return
        if batch.num_rows:
            self.rows += batch.num_rows
            self._group.append(batch)
            self.held_bytes += batch.nbytes
        if len(self._group) == ROW_GROUP_BATCHES:
            self.write_group()

    def _write(self, rows: pa.Table) -> None:
        with local_disk():
            try:
                if self._writer is None:
                    self._writer = table_writer(self.path, self.reader.schema)
                self._writer.write_table(rows)
            except pa.ArrowNotImplementedError as error:
                self._refuse(error)

    def abandon(self) -> None:
        """Close the file, whatever is in it, once no write goes on."""
        with suppress(OSError, pa.ArrowException):
            self._close()

    def _close(self) -> None:
        if self._writer is not None:
            with local_disk():
                self._writer.close()

    def _refuse(self, error: Exception) -> None:
        self.problem = str(error)
        self._group, self.held_bytes = [], 0


class SlotTables:
    """Takes the entries of a slot in the order of a scan, and writes a table per state. A context manager: after an error it closes the files.

    Args:
        readers: Of the states; entries of others are left out.
        store: Has the entries; long lists are read from it.
        folder: For the files.
        writes: Writes them.
    """

    def __init__(self, readers: Iterable[StateReader], store: StoredEntries, folder: Path, writes: WriteBehind) -> None:
        self._tables = {
            reader.info.state_id: StateTable(reader, folder / f"{reader.info.state_id}.parquet", store, writes) for reader in readers
        }
        self._writes = writes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._writes.stop()
            for table in self._tables.values():
                table.abandon()

    def add(self, keys: list[bytes], values: list[bytes]) -> None:
        """Take entries.

        Raises:
            CorruptDataError: An entry is damaged.
            UnavailableError: The disk is full or fails.
        """
        for state_id, first, end in _runs(keys):
            if (table := self._tables.get(state_id)) is not None:
                table.add(keys[first:end], values[first:end])
        while sum(table.held_bytes for table in self._tables.values()) > _HELD_BYTES:
            max(self._tables.values(), key=lambda table: table.held_bytes).write_group()

    def finish(self) -> list[StateTable]:
        """Write what is left, and return the tables. Errors as of `add`."""
        for table in self._tables.values():
            table.finish()
        self._writes.wait()
        return list(self._tables.values())


def table_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Begin a table."""
    return pq.ParquetWriter(path, schema, compression="zstd")


def _runs(keys: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield state id, first and end of the keys of one state that stand together."""
    try:
        ids = Payloads.of(keys).without(_STATE_ID).numbers("u2")
    except ValueError as error:
        raise CorruptDataError("a store key is too short", path="state") from error
    firsts = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist()]
    yield from zip(ids[firsts].tolist(), firsts, [*firsts[1:], len(keys)], strict=True)
