"""The tables that a canonical savepoint has of its states: what they show, and how they are read instead of the entries.

A table has the rows that the entries would give, so reading it saves decoding them again. Where a caller wants other columns or other rows, the
entries are read (`state_tables.reading`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import SlotState, TableFile
from statefulspark.checkpoint.transfers import verified_file
from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.store.parquet_entries import damaged_parquet
from statefulspark.state_tables.arrow_types import Conversions
from statefulspark.state_tables.layouts import BATCH_BYTES, ROWS_MAX

CANONICAL_CONVERSIONS: Final = Conversions(decimals_as_text=True)
"""A number of any length has a column: no decimal of Arrow holds each of them."""
_ADDED: Final = 1
"""``expires_ms``, the last column of a table, is left out where it is not wanted."""


def has_expiry(info: StateInfo) -> bool:
    """Return True if values of a state may expire, or those of an earlier schema did: its table tells when."""
    return info.ttl_ms is not None or any(schema.ttl_ms is not None for schema in info.schemas)


class CanonicalTables:
    """The tables of one state of a canonical savepoint.

    Args:
        savepoint: A savepoint.
        info: A keyed state of it.
        schema: Of its tables.
    """

    def __init__(self, savepoint: StoredCheckpoint, info: StateInfo, schema: pa.Schema) -> None:
        self._savepoint = savepoint
        self._schema = schema
        self._files = [table for table in savepoint.metadata.tables if (table.uid, table.state) == (info.uid, info.name)]

    def have(self, wanted: pa.Schema) -> bool:
        """Return True if there are tables and they have the wanted columns, in their order."""
        fields, found = list(wanted), list(self._schema)
        return bool(self._files) and fields == found[: len(fields)] and len(found) <= len(fields) + _ADDED

    def batches(self, slot: SlotState, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slot's table in the order of its entries.

        Args:
            slot: Of the savepoint.
            wanted: Columns that the tables `have`.

        Raises:
            CorruptDataError: A file is missing or damaged.
            UnavailableError: Storage did not answer, or the local disk is full.
        """
        for table in self._files:
            if table.rows and table.first in slot.key_groups:
                yield from self._rows(table, wanted)

    def _rows(self, table: TableFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        store, columns = self._savepoint.store, list(range(len(wanted)))
        key = paths.resolve_reference(self._savepoint.key, table.path)
        with verified_file(store, key, table.digest) as path, damaged_parquet(path), pq.ParquetFile(path) as file:
            if file.schema_arrow.names != self._schema.names:
                raise CorruptDataError("its columns are not those of the state", path=paths.url_of(store.url, key))
            for index in range(file.num_row_groups):
                group = file.metadata.row_group(index)
                # The batches of a group were written together, and its values may be large.
                rows = max(1, min(ROWS_MAX, BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)))
                yield from file.read_row_group(index).select(columns).cast(wanted).to_batches(rows)
