"""Writes the files of a canonical savepoint (docs/rfcs/0010-canonical-savepoints.md).

The origin is only read. The caller names the folder, and publishes it or discards it (`state_tables.canonical`): until then it is no savepoint.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import digest_bytes, digest_file
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, FileRef, OperatorFile, SlotState, TableFile
from statefulspark.checkpoint.inspect.reader import state_infos
from statefulspark.checkpoint.transfers import Copier
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.entries import CANONICAL, PARQUET_ENTRIES_FILE
from statefulspark.state.encoding.layout import StateInfo, key_group_range_bounds
from statefulspark.state.operator.entries import is_operator_state
from statefulspark.state.store.base import StoredEntries
from statefulspark.state.store.parquet_entries import Entry, ParquetEntriesWriter, entry_pieces
from statefulspark.state_tables.canonical.tables import CANONICAL_CONVERSIONS, has_expiry
from statefulspark.state_tables.read.key_filter import KeyFilter
from statefulspark.state_tables.read.reading import StateReader
from statefulspark.state_tables.read.slot_tables import ROW_GROUP_BATCHES, SlotTables, StateTable, table_writer
from statefulspark.state_tables.write.contents import Contents, StoredContents
from statefulspark.state_tables.write.write_behind import WriteBehind
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.os_errors import local_disk

_File = TypeVar("_File", bound=FileRef)
_State = tuple[str, str]
"""uid and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpublishedSavepoint:
    """Files of a canonical savepoint, which is none before its ``_metadata`` is stored.

    Attributes:
        metadata: Contents of ``_metadata``.
        entries: Stored entries of keyed state, timers and raw keyed state.
        without_table: The states that have no table, by uid and name, and why. The savepoint has their entries.
    """

    metadata: CheckpointMetadata
    entries: int
    without_table: dict[_State, str]


def write_unpublished(
    origin: StoredCheckpoint,
    target: ObjectStore,
    folder: str,
    *,
    open_store: OpenStore,
    key_filter: KeyFilter | None = None,
    contents: Contents | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> UnpublishedSavepoint:
    """Write every file but ``_metadata``. If this fails or is interrupted, some are left: `state_tables.canonical.Publication` deletes them.

    Args:
        origin: A checkpoint or savepoint. It is only read.
        target: Opened at the folder above the savepoint's.
        folder: Name of the savepoint's folder; nobody else writes there.
        open_store: Opens the store of a URL.
        key_filter: Keys that the savepoint does not get.
        contents: What the states of ``origin.metadata`` hold; by default these are the files that it names.
        progress: Called with the name of each part before it is converted.

    Raises:
        CorruptDataError: A file or an entry of the origin is damaged; the message names it.
        UnavailableError: Storage did not answer, or the local disk is full.
    """
    copier = Copier(origin.store, target, open_store)
    return _Conversion(origin, contents or StoredContents(origin), target, folder, copier, key_filter or KeyFilter()).run(progress)


@dataclass(slots=True)
class _Conversion:
    """One conversion.

    Attributes:
        origin: What is converted.
        contents: Its entries and operator state.
        target: Opened at the folder above the savepoint's.
        folder: Name of the savepoint's folder.
        copier: From the origin to the target.
        key_filter: Keys that the savepoint does not get.
        tables: Files that are stored.
        without_table: As in `UnpublishedSavepoint`.
        entries: Number of entries so far.
    """

    origin: StoredCheckpoint
    contents: Contents
    target: ObjectStore
    folder: str
    copier: Copier
    key_filter: KeyFilter
    tables: list[TableFile] = field(default_factory=list)
    without_table: dict[_State, str] = field(default_factory=dict)
    entries: int = 0

    def run(self, progress: Callable[[str], None]) -> UnpublishedSavepoint:
        metadata = self.origin.metadata
        infos = sorted(state_infos(self.origin), key=lambda info: (info.uid, info.name))
        keyed = [self._reader(info) for info in infos if not is_operator_state(info)]
        operator = [self._reader(info) for info in infos if is_operator_state(info)]
        slots = []
        for slot in metadata.slots:
            progress(f"slot {slot.slot} of {metadata.parallelism}")
            slots.append(self._slot(slot, keyed))
        progress("operator state")
        for reader in operator:
            self._table(reader, reader.operator_batches(), None)
        self._complete_tables([*keyed, *operator])
        location = metadata.spark_location
        converted = metadata.model_copy(
            update={
                "kind": "savepoint",
                "slots": tuple(slots),
                "spark_location": self._copied(location, f"spark-location-{uuid4().hex[:8]}") if location is not None else None,
                "spark_state": tuple(self._copied(pack, f"spark-state/{uuid4().hex}") for pack in metadata.spark_state),
                "operator_state": tuple(map(self._operator_file, metadata.operator_state)),
                "tables": tuple(self.tables),
            }
        )
        return UnpublishedSavepoint(metadata=converted, entries=self.entries, without_table=self.without_table)

    def _reader(self, info: StateInfo) -> StateReader:
        return StateReader(self.origin, info.uid, info.name, with_expiry=has_expiry(info), conversions=CANONICAL_CONVERSIONS)

    def _slot(self, slot: SlotState, readers: Iterable[StateReader]) -> SlotState:
        """Store the entries and tables of a slot."""
        readers = [reader for reader in readers if (reader.info.uid, reader.info.name) not in self.without_table]
        with self.contents.opened(slot) as every, _local_folder() as folder:
            path = folder / PARQUET_ENTRIES_FILE
            store = self.key_filter.applied(every)
            with (
                ParquetEntriesWriter(path) as entries,
                WriteBehind() as writes,
                SlotTables(readers, store, folder, writes) as tables,
            ):
                for keys, values in entry_pieces(self.key_filter.kept(_entries(every, slot))):
                    writes.run(partial(entries.append, keys, values))
                    tables.add(keys, values)
                    self.entries += len(keys)
                written = tables.finish()
            file = self._stored(path, f"slot-{slot.slot}-{uuid4().hex[:8]}/{PARQUET_ENTRIES_FILE}")
            for table in written:
                self._add(table, slot.key_groups)
        return slot.model_copy(
            update={"backend": CANONICAL, "shared": (), "private": (file,), "inline": None, "heap_timers": False},
        )

    def _add(self, table: StateTable, groups: KeyGroupRange) -> None:
        """Store the table of a slot's state, if it has rows."""
        state = (table.reader.info.uid, table.reader.info.name)
        if table.problem is not None:
            self.without_table[state] = table.problem
        elif table.rows:
            self._name_table(state, table.path, groups, table.rows)

    def _table(
        self, reader: StateReader, batches: Iterator[pa.RecordBatch], groups: KeyGroupRange | None, *, if_empty: bool = False
    ) -> None:
        """Store rows of a state, if there are some. A state with a value that no column holds gets no table."""
        state = (reader.info.uid, reader.info.name)
        if state in self.without_table:
            return
        with _local_folder() as folder:
            path = folder / "table.parquet"
            try:
                rows = write_table(path, reader.schema, batches)
            except (InvalidInputError, pa.ArrowNotImplementedError) as error:
                self.without_table[state] = str(error)
                return
            if rows or if_empty:
                self._name_table(state, path, groups, rows)

    def _name_table(self, state: _State, path: Path, groups: KeyGroupRange | None, rows: int) -> None:
        """Store a table, and note it for ``_metadata``."""
        stored = self._stored(path, paths.table_reference(*state, groups))
        uid, name = state
        first, last = (None, None) if groups is None else (groups.first, groups.last)
        self.tables.append(TableFile(**stored.model_dump(), uid=uid, state=name, first=first, last=last, rows=rows))

    def _complete_tables(self, readers: Iterable[StateReader]) -> None:
        """Give each state without rows one empty file, which tells its columns, and delete those of states that get no table."""
        named = {(table.uid, table.state) for table in self.tables}
        every = KeyGroupRange(0, self.origin.metadata.max_parallelism - 1)
        for reader in readers:
            if (reader.info.uid, reader.info.name) not in named:
                self._table(reader, iter(()), None if is_operator_state(reader.info) else every, if_empty=True)
        dropped = [table for table in self.tables if (table.uid, table.state) in self.without_table]
        self.tables = [table for table in self.tables if table not in dropped]
        self.target.delete(f"{self.folder}/{table.path}" for table in dropped)

    def _stored(self, path: Path, reference: str) -> FileRef:
        with local_disk():
            digest = digest_file(path)
        self.target.put_file(f"{self.folder}/{reference}", path)
        name = reference.rpartition("/")[2]
        return FileRef(name=name, path=reference, size_bytes=digest.size_bytes, checksum=digest.checksum)

    def _operator_file(self, file: OperatorFile) -> OperatorFile:
        reference = f"slot-{file.slot}-{uuid4().hex[:8]}/{file.name}"
        if (changed := self.contents.changed_operator_file(file)) is None:
            return self._copied(file, reference)
        self.target.put(f"{self.folder}/{reference}", changed)
        digest = digest_bytes(changed)
        return file.model_copy(update={"path": reference, "size_bytes": digest.size_bytes, "checksum": digest.checksum})

    def _copied(self, file: _File, reference: str) -> _File:
        source = paths.resolve_reference(self.origin.key, file.path)
        self.copier.copy(source, f"{self.folder}/{reference}", file.digest)
        return file.model_copy(update={"path": reference})


def write_table(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    """Write rows to a new Parquet file; return how many there were.

    Raises:
        InvalidInputError: A value does not fit its column.
        UnavailableError: The disk is full or fails.
    """
    rows = 0
    with local_disk(), table_writer(path, schema) as writer:
        group: list[pa.RecordBatch] = []
        for batch in batches:
            group.append(batch)
            rows += batch.num_rows
            if len(group) == ROW_GROUP_BATCHES:
                writer.write_table(pa.Table.from_batches(group))
                group = []
        if group:
            writer.write_table(pa.Table.from_batches(group))
    return rows


def _entries(store: StoredEntries, slot: SlotState) -> Iterator[Entry]:
    return store.scan(*key_group_range_bounds(slot.first, slot.last))


@contextmanager
def _local_folder() -> Iterator[Path]:
    with local_disk(), tempfile.TemporaryDirectory(prefix="statefulspark-convert-") as scratch:
        yield Path(scratch)
