"""The tables that a canonical savepoint has of its states: what they show, and how they are read instead of the entries.

A table has the rows that the entries would give, so reading it saves decoding them again. Where a caller wants other columns or other rows, the
entries are read (`state_tables.reading`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import SlotState, TableFile
from statefulspark.checkpoint.formats.pipeline import StepKey
from statefulspark.checkpoint.transfers import verified_file
from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.store.parquet_entries import damaged_parquet
from statefulspark.state.types.arrow_types import Conversions
from statefulspark.state_tables.read.layouts import BATCH_BYTES, ROWS_MAX, TableOptions, layout_of

CANONICAL_CONVERSIONS: Final = Conversions(decimals_as_text=True)
"""A number of any length has a column: no decimal of Arrow holds each of them."""
_ADDED: Final = 1
"""``expires_ms``, the last column of a table, is left out where it is not wanted."""


def has_expiry(info: StateInfo) -> bool:
    """Return True if values of a state may expire, or those of an earlier schema did: its table tells when."""
    return info.ttl_ms is not None or any(schema.ttl_ms is not None for schema in info.schemas)


def canonical_tables(
    checkpoint: StoredCheckpoint, info: StateInfo, step: StepKey | None, wanted: pa.Schema, *, include_expired: bool
) -> CanonicalTables | None:
    """Return the tables from which a state can be read; None if its entries must be.

    Args:
        checkpoint: Any checkpoint or savepoint; canonical ones have tables.
        info: The state.
        step: Key of its step, None if the checkpoint does not say.
        wanted: Columns that are read.
        include_expired: True if values that have expired are read too, which tables do not have.
    """
    files = tuple(table for table in checkpoint.metadata.tables if (table.uid, table.state) == (info.uid, info.name))
    expires = has_expiry(info)
    if not files or (include_expired and expires):
        return None
    schema = layout_of(info, step, TableOptions(until_ms=None, with_expiry=expires, conversions=CANONICAL_CONVERSIONS)).schema
    if list(wanted) != list(schema)[: len(wanted)] or len(schema) > len(wanted) + _ADDED:
        return None
    return CanonicalTables(checkpoint, files, schema, wanted)


@dataclass(frozen=True, slots=True)
class CanonicalTables:
    """The tables of one keyed state of a canonical savepoint.

    Attributes:
        savepoint: The savepoint.
        files: Those of the state.
        schema: Of the files.
        wanted: The first columns, or all, which are read.
    """

    savepoint: StoredCheckpoint
    files: tuple[TableFile, ...]
    schema: pa.Schema
    wanted: pa.Schema

    def batches(self, slot: SlotState) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slot's table in the order of its entries.

        Raises:
            CorruptDataError: A file is missing or damaged.
            UnavailableError: Storage did not answer, or the local disk is full.
        """
        for table in self.files:
            if table.rows and table.first in slot.key_groups:
                yield from self._rows(table)

    def _rows(self, table: TableFile) -> Iterator[pa.RecordBatch]:
        store, columns = self.savepoint.store, list(range(len(self.wanted)))
        key = paths.resolve_reference(self.savepoint.key, table.path)
        with verified_file(store, key, table.digest) as path, damaged_parquet(path), pq.ParquetFile(path) as file:
            if file.schema_arrow.names != self.schema.names:
                raise CorruptDataError("its columns are not those of the state", path=paths.url_of(store.url, key))
            for index in range(file.num_row_groups):
                group = file.read_row_group(index).select(columns).cast(self.wanted)
                # Measured as read: in the file, a large value that recurs may be there once.
                yield from group.to_batches(max(1, min(ROWS_MAX, BATCH_BYTES * group.num_rows // max(1, group.nbytes))))
